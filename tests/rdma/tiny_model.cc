// Writes the tests' tiny model, for the guest: tiny_model FILE; or with LAYERS a deep and narrow
// one, which makes many syncs and computes little: tiny_model FILE LAYERS.
#include <cstdio>
#include <cstdlib>

#include "support/tiny_gguf.h"

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: tiny_model FILE [LAYERS]\n");
        return 2;
    }
    weft::model::Hyper hyper = weft::support::OddHyper();
    hyper.context = 1 << 20;  // more than any run waits for
    if (argc == 3) {
        hyper.layers = std::atoi(argv[2]);
        hyper.hidden = 64;
        hyper.ffn = 128;
        hyper.heads = hyper.kv_heads = 2;
    }
    weft::support::WriteTinyGguf(argv[1], {.hyper = hyper, .dtype = weft::DType::kQ8_0});
}
