"""How Sphinx makes the site of these pages; `./dev docs` runs it and brings the generated pages.

Everything is served from the site itself: no font, script or counter comes from elsewhere.
"""  # noqa: INP001  Sphinx reads this file, nobody imports it

import os

from docutils import nodes

project = "mpsfleet"
author = "mpsfleet authors"
release = version = os.environ["MPSFLEET_DOCS_VERSION"]
copyright = "mpsfleet authors. Apache-2.0; the collection's plugins are GPL-3.0-or-later"  # noqa: A001  Sphinx's name

extensions = ["myst_parser", "sphinx_antsibull_ext", "sphinx_copybutton"]
exclude_patterns = ["conf.py"]
nitpicky = True  # a reference that leads nowhere is a warning, and ./dev docs takes warnings for errors
myst_heading_anchors = 3

html_title = f"mpsfleet {release}"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_last_updated_fmt = None  # equal pages give an equal site

highlight_language = "none"
copybutton_prompt_text = r"^[$#] "  # a copied command is without its prompt, and without what it printed
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_remove_prompts = True

# The collection's pages refer to Ansible's own, of which no list is fetched: these few are named here.
ANSIBLE = "https://docs.ansible.com/projects/ansible/latest"
ELSEWHERE = {
    "action_plugins": "plugins/action.html",
    "ansible_configuration_settings": "reference_appendices/config.html",
    "common_return_values": "reference_appendices/common_return_values.html",
    "ansible_collections.ansible.builtin.free_strategy": "collections/ansible/builtin/free_strategy.html",
    "ansible_collections.ansible.builtin.host_pinned_strategy": "collections/ansible/builtin/host_pinned_strategy.html",
}


def lead_elsewhere(_app, _env, node, contents):  # noqa: ANN001, ANN201  as Sphinx hands it over
    """Return a link to Ansible's own pages for a label of theirs, None for all others."""
    place = ELSEWHERE.get(node.get("reftarget"))
    return None if place is None else nodes.reference("", "", contents, internal=False, refuri=f"{ANSIBLE}/{place}")


def setup(app):  # noqa: ANN001, ANN201  as Sphinx calls it
    """Tell Sphinx whom to ask for a label that it does not know."""
    app.connect("missing-reference", lead_elsewhere)
    return {"parallel_read_safe": True}
