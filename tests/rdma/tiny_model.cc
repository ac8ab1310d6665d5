// Writes the tests' tiny model, for the guest: tiny_model FILE.
#include <cstdio>

#include "support/tiny_gguf.h"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: tiny_model FILE\n");
        return 2;
    }
    weft::model::Hyper hyper = weft::support::OddHyper();
    hyper.context = 1 << 20;  // more than any run waits for
    weft::support::WriteTinyGguf(argv[1], {.hyper = hyper, .dtype = weft::DType::kQ8_0});
}
