# The front door.
#
#   make               build/cloche (static), build/cloche-image               make bench        how fast it starts, against others
#   make demo          build it and run code in a box        make fuzz         every fuzzer for FUZZ_SECONDS
#   make test          everything, on a fresh machine        make analyze      a static analyser over the sources
#   make test-faults   every system call of a start fails     make test-mutants  every lock compiled out is noticed
#   make sanitize      the suites against a program with address and undefined-behaviour sanitizers
#   make check-style   sizes, layers, banned calls, docs     make test-long    the same on a fresh root file system
#   make test-guest    the part that needs another kernel, in virtual machines
#   make install PREFIX=/usr/local DESTDIR=                  make clean
#   make packages             static programs, wheels, npm packages and tarballs for amd64 and arm64, in build/packages/dist
#
# What is missing is installed by tools/deps as root or through sudo; otherwise the command to run is printed.
MESON ?= meson
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 10
PYTHON ?= /usr/bin/python3
B := build
# Flags of the caller's shell are for other programs; ours are in meson.build.
SETUP := env -u CFLAGS -u LDFLAGS -u CPPFLAGS $(MESON) setup
ASAN := ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# Signals that tests send are for the program.
ASAN_SUITE := $(subst halt_on_error=1 U,halt_on_error=1:handle_segv=0:handle_abort=0 U,$(ASAN))
SAN := -Db_sanitize=address,undefined -Db_lundef=false

.NOTPARALLEL:
.PHONY: all demo test test-guest test-long unit unit-clang sanitize suite test-faults test-mutants check-style analyze fuzz bench install packages clean

all: $(B)/build.ninja $(B)/image/build.ninja
	@ninja -C $(B) --quiet >$(B)/ninja.log 2>&1 || { cat $(B)/ninja.log; exit 1; }
	@ln -f $(B)/src/prog/cloche $(B)/cloche
	@ninja -C $(B)/image --quiet src/prog/cloche-image src/prog/cloche-serve >$(B)/ninja.log 2>&1 || { cat $(B)/ninja.log; exit 1; }
	@ln -f $(B)/image/src/prog/cloche-image $(B)/cloche-image
	@ln -f $(B)/image/src/prog/cloche-serve $(B)/cloche-serve
$(B)/build.ninja:
	@tools/deps build
	@native='--native-file tools/musl.ini'; case "$$(gcc -dumpmachine)" in *musl*) native=-Dmusl=true ;; esac; \
		$(SETUP) $$native $(B) >$(B).log 2>&1 || { cat $(B).log; exit 1; }; rm -f $(B).log
# cloche-image and cloche-serve stand on the host's libraries.
$(B)/image/build.ninja:
	@tools/deps build
	@mkdir -p $(B) && $(SETUP) $(B)/image >$(B)/image.log 2>&1 || { cat $(B)/image.log; exit 1; }; rm -f $(B)/image.log

demo: all
	@tools/demo $(B)/cloche

# Every part runs, whatever an earlier one said, so that one run shows all there is to mend.
test:
	@tools/deps test
	@tools/deps programs
	@$(MAKE) --no-print-directory all
	@failed=; export FUZZ_SECONDS=$${FUZZ_SECONDS:-2} FUZZ_SEED=$${FUZZ_SEED:-1}; for part in check-style unit unit-clang analyze fuzz suite test-faults test-guest \
		test-mutants; do $(MAKE) --no-print-directory $$part MUTANTS="$${MUTANTS---short}" || failed="$$failed $$part"; done; \
	if [ -n "$$failed" ]; then echo "== make test: failed:$$failed"; exit 1; fi
	@echo "== make test: all passed"

unit: $(B)/test/build.ninja
	@echo "== unit tests, gcc"
	@ninja -C $(B)/test --quiet >$(B)/ninja.log 2>&1 || { cat $(B)/ninja.log; exit 1; }
	@$(MESON) test -C $(B)/test --no-rebuild --print-errorlogs
unit-clang: $(B)/test-clang/build.ninja
	@echo "== unit tests, clang with address and undefined-behaviour sanitizers"
	@ninja -C $(B)/test-clang --quiet >$(B)/ninja.log 2>&1 || { cat $(B)/ninja.log; exit 1; }
	@$(ASAN) $(MESON) test -C $(B)/test-clang --no-rebuild --print-errorlogs -t 5
# SANITIZE=tests/... narrows it.
sanitize: unit-clang
	@echo "== the suites against the sanitized program"
	@$(ASAN_SUITE) CLOCHE=$(B)/test-clang/src/prog/cloche PYTHON=$(PYTHON) tests/run $(or $(SANITIZE),tests/integration tests/security)
$(B)/test/build.ninja:
	@tools/deps test
	@mkdir -p $(B) && $(SETUP) -Dtests=true -Dbuildtype=debugoptimized $(B)/test >/dev/null
$(B)/test-clang/build.ninja:
	@tools/deps test
	@mkdir -p $(B) && CC=clang $(SETUP) -Dtests=true -Dbuildtype=debugoptimized $(SAN) $(B)/test-clang >/dev/null

suite: all
	@PYTHON=$(PYTHON) tests/run $(TESTS)
# A spread of the calls; FAULTS=--every takes all of them.
test-faults: all
	@echo "== fault injection"
	@CLOCHE=$(abspath $(B)/cloche) $(PYTHON) tests/faults/faults.py $(or $(FAULTS),--spread 100)
# All of them; MUTANTS=--short takes a handful, MUTANTS=NAME those of that name.
test-mutants: all
	@echo "== mutants"
	@[ "$$(id -u)" != 0 ] || tools/deps guest
	@PYTHON=$(PYTHON) tools/mutants $(MUTANTS)
check-style: all
	@$(PYTHON) tools/check-style $(B)/cloche
test-guest: all
	@[ "$$(id -u)" != 0 ] || tools/deps guest
	@$(PYTHON) tools/guest/suite $(PLACES)
test-long: test fuzz sanitize
	@$(PYTHON) tests/faults/faults.py --every
	@PYTHON=$(PYTHON) tools/mutants
	@bench/many --at-once 1000 --in-a-row 10000
	@CLOCHE_PULL_KILLS=200 CLOCHE_LAYER_MB=3300 PYTHON=$(PYTHON) tests/run tests/integration/test_image_kills.py \
		tests/integration/test_image_pull.py -k "killed or large"
	@bench/image
	@CLOCHE_KILLS=1000 CLOCHE_PARALLEL=10000 PYTHON=$(PYTHON) tests/run tests/security/test_lifecycle.py tests/integration/test_many.py
	@$(MAKE) --no-print-directory packages
	@PYTHON=$(PYTHON) tests/run tests/long
	@tools/fresh-root

analyze: $(B)/test-clang/build.ninja
	@tools/analyze $(B)/test-clang
fuzz: all
	@tools/fuzz $(FUZZ_SECONDS)
bench: all
	@tools/deps bench
	@bench/start
	@bench/pyc
	@bench/changes

install: all
	@install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	@install -m 755 $(B)/cloche $(DESTDIR)$(PREFIX)/bin/cloche
	@install -d $(DESTDIR)$(PREFIX)/lib/cloche
	@install -m 755 $(B)/cloche-image $(B)/cloche-serve $(DESTDIR)$(PREFIX)/lib/cloche
	@$(B)/cloche man >$(DESTDIR)$(PREFIX)/share/man/man1/cloche.1
	@$(B)/cloche completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/cloche
	@$(B)/cloche completion zsh >$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_cloche
	@$(B)/cloche completion fish >$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/cloche.fish
	@echo "installed $(DESTDIR)$(PREFIX)/bin/cloche and $(DESTDIR)$(PREFIX)/lib/cloche"

# ARCHES=amd64 makes those of one.
packages: all
	@tools/deps packages
	@tools/packages/make $(ARCHES)

clean:
	@rm -rf $(B)
