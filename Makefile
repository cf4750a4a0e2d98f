# The words people try first. Each calls the script or command that does the work.
.PHONY: help test install smoke-remote e2e
export HOST IMAGE

help:
	@echo 'make test                              run the test suite: ./test'
	@echo 'make install                           install the sandbox command with cargo'
	@echo 'make smoke-remote HOST=h [IMAGE=i]     try stacks on a host: scripts/smoke-compose-e2e.sh'
	@echo 'make e2e                               say what replaces it, and fail'

test:
	./test

install:
	cargo install --locked --path crates/sandboxer

smoke-remote:
	scripts/smoke-compose-e2e.sh "$$HOST" $${IMAGE:+"$$IMAGE"}

# Fails: a job that still calls it must not pass without having tested anything.
e2e:
	@echo 'error: there is no make e2e here: sandbox creates the stack, the caller runs the tests' >&2
	@echo 'hint: in your repository: sandbox create --profile profile.compose-e2e --input repo=. --name e2e' >&2
	@echo 'hint: then: sandbox exec e2e --service SERVICE -- COMMAND, and sandbox destroy e2e' >&2
	@echo 'hint: extensions/ext.compose-ssh.md says what replaces each step; make smoke-remote HOST=h tries a host' >&2
	@exit 1
