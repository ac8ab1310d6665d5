// weft: the command line. Subcommands parse flags and print; the work is done in engine/.
#include <cstdio>

int main() {
    std::puts("weft " WEFT_VERSION);
    return 0;
}
