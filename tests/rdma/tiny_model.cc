// Writes the tests' tiny model, for the guest: tiny_model FILE; or with LAYERS a deep and narrow
// one, which makes many syncs and computes little: tiny_model FILE LAYERS; or one of 28 MB, nearly
// all of them in experts: tiny_model FILE experts.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/tiny_gguf.h"

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: tiny_model FILE [LAYERS|experts]\n");
        return 2;
    }
    const bool experts = argc == 3 && std::string_view(argv[2]) == "experts";
    weft::model::Hyper hyper = weft::support::OddHyper(experts ? "qwen3moe" : "llama");
    hyper.context = 1 << 20;  // more than any run waits for
    if (experts) {
        hyper.layers = 4;
        hyper.hidden = 256;
        hyper.moe.experts = 16;
        hyper.moe.used = 2;
        hyper.moe.ffn = 512;
    } else if (argc == 3) {
        hyper.layers = std::atoi(argv[2]);
        hyper.hidden = 64;
        hyper.ffn = 128;
        hyper.heads = hyper.kv_heads = 2;
    }
    weft::support::WriteTinyGguf(argv[1], {.hyper = hyper, .dtype = weft::DType::kQ8_0});
}
