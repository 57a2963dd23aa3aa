#include "cli/cli.h"

int main(int argc, char** argv) {
  return wader::run_cli(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
