# Front door of the project: each target does all of its set-up (packages, configuring, building) itself.
# The build is CMake's; presets are in CMakePresets.json, build folders are build/PRESET.

.PHONY: help demo test build debug asan tsan aarch64 soak hub-faults serve-load fuzz format clean

help:
	@echo 'make demo     install the demo model and chat with it, its experts streaming from disk'
	@echo 'make test     all tests, then the sanitizer builds (AddressSanitizer, UBSan, ThreadSanitizer), then ARM kernels'
	@echo 'make build    the release build: build/release/wader'
	@echo 'make debug    a build with debug information and no optimisation: build/debug/wader'
	@echo 'make asan     tests under AddressSanitizer and UndefinedBehaviorSanitizer only'
	@echo 'make tsan     tests of the code with threads under ThreadSanitizer only'
	@echo 'make aarch64  tests of the kernels of 64-bit ARM under an emulator only'
	@echo 'make soak     mixed load at the limit of a memory cgroup for WADER_SOAK_SECONDS (1200); needs root'
	@echo 'make hub-faults  installs from a stub of the hub under WADER_HUB_SEEDS (200) schedules of faults, kills, full disks'
	@echo 'make serve-load  32 clients against the server for WADER_LOAD_SECONDS (600), then hostile ones; needs node'
	@echo 'make fuzz     every fuzz target for WADER_FUZZ_SECONDS (60)'
	@echo 'make format   clang-format over all C++ files'
	@echo 'make clean    removes build/'

demo:
	@tools/setup.sh build
	@tools/build.sh release:wader
	@tools/demo.sh

test:
	@tools/setup.sh test
	@tools/test.sh

build:
	@tools/setup.sh build
	@tools/build.sh release

debug:
	@tools/setup.sh build
	@tools/build.sh debug

asan tsan aarch64:
	@tools/setup.sh test
	@tools/test.sh $@

soak:
	@tools/setup.sh test
	@tools/build.sh release:wader_memory_pressure_test
	@WADER_SOAK_SECONDS=$${WADER_SOAK_SECONDS:-1200} build/release/tests/wader_memory_pressure_test

hub-faults:
	@tools/setup.sh test
	@tools/build.sh release:wader_hub_faults_test
	@WADER_HUB_SEEDS=$${WADER_HUB_SEEDS:-200} build/release/tests/wader_hub_faults_test

serve-load:
	@tools/setup.sh build
	@tools/build.sh release:wader
	@node tests/api/load.mjs build/release/wader --seconds $${WADER_LOAD_SECONDS:-600}
	@node tests/api/hostile.mjs build/release/wader --long

fuzz:
	@tools/setup.sh fuzz
	@tools/build.sh fuzz
	@tools/fuzz.sh

format:
	@git ls-files --cached --others --exclude-standard '*.cpp' '*.h' | xargs $$(command -v clang-format-14 || echo clang-format) -i

clean:
	rm -rf build
