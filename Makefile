# Thin names for ./dev, which also works where there is no make.
.DEFAULT_GOAL := help
.PHONY: help lint fast lab lab-full bench pyz collection docs test demo

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lint: ## ruff, mypy, documentation, ansible-lint
	@./dev lint

fast: ## the tests that need no lab
	@./dev fast

lab: ## the tests on a real Slurm cluster on this machine (root)
	@./dev test --lab

lab-full: ## those tests on every Debian suite; writes docs/compatibility.md (root, about an hour)
	@./dev lab-full

bench: ## the benchmarks
	@./dev bench

pyz: ## build/mpsfleet.pyz, the program as one file
	@./dev pyz

collection: ## the Ansible collection's tarball, in build/
	@./dev collection

docs: ## the documentation as a site, in build/docs/site
	@./dev docs

test: ## all checks and tests
	@./dev test

demo: ## a simulated fleet: deploy, break, drain, repair (needs no root)
	@./dev demo
