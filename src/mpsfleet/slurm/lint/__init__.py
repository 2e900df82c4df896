"""slurm.conf and gres.conf against each other and against a node's GPUs: text to values, values to findings.

settings and sources read, slurm_conf and gres_conf give values, told says what they tell one node, judge_* find what is
wrong, wanted says which lines to change. Nothing here writes.
"""
