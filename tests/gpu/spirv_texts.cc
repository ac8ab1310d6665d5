// spirv_texts FOLDER: writes the text of every shader to FOLDER/NAME.hip64.cc, .hip32.cc and
// .cuda.cc, for tests/gpu/compile_test.py. Leaves out shaders that only tests use (_emulated).
#include <cstdio>
#include <fstream>

#include "gpu/spirv/translate.h"
#include "shaders/shaders.h"

namespace weft {
namespace {

using gpu::spirv::Language;
using gpu::spirv::Specialization;

// The constants with which backend/gpu makes the shaders whose names start with `prefix`; the
// first row counts. threads: of a workgroup. matrices: constant of the number of subgroups.
struct Row {
    std::string_view prefix;
    uint32_t threads;
    std::vector<Specialization> others{};
    uint32_t matrices = 0;
};
const Row kRows[] = {
    {"attention_matrix",
     128,
     {{2, 128}, {3, 128}, {4, 128}, {5, 64}, {6, 64}, {7, 128}, {8, 1}, {9, 1}}},
    {"attention_merge", 64},
    {"attention",
     128,
     {{2, 128}, {3, 128}, {4, 128}, {5, 16}, {6, 32}, {7, 64}, {8, 0}, {9, 8}, {10, 1}}},
    {"delta_rule", 128},
    {"gemm_matrix", 256, {{7, 7}}, 11},
    {"gemm", 256, {{7, 7}}},
    {"map", 256},
    {"matvec", 64, {{1, 1}, {2, 2}}},
    {"norm", 256},
    {"residual", 256},
    {"rope", 256},
    {"tile_matrix", 128, {{1, 64}, {5, 64}, {6, 64}, {7, 2}, {8, 1}}, 4},
    {"tile", 128},
    {"top", 256},
    {"", 64},
};

int Write(std::string_view name, Language language, uint32_t subgroup, const std::string& path) {
    const Row* row = kRows;
    while (!name.starts_with(row->prefix)) ++row;
    std::vector<Specialization> constants = row->others;
    constants.push_back({0, row->threads});
    constants.push_back({34, 1});  // halves.glsl: as gpu/native/kernel.cc sets it
    if (row->matrices != 0) constants.push_back({row->matrices, row->threads / subgroup});
    const auto text =
        gpu::spirv::Translate({name, shaders::Find(name), constants, subgroup, language});
    if (!text.ok()) {
        std::fprintf(stderr, "%s\n", text.error().message.c_str());
        return 1;
    }
    std::ofstream(path) << text->source;
    return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
    if (count != 2) return 2;
    int failed = 0;
    for (const auto& name : weft::shaders::Names()) {
        if (name.find("_emulated") != std::string_view::npos) continue;
        const std::string path = std::string(arguments[1]) + "/" + std::string(name);
        failed += weft::Write(name, weft::Language::kHip, 64, path + ".hip64.cc");
        failed += weft::Write(name, weft::Language::kHip, 32, path + ".hip32.cc");
        failed += weft::Write(name, weft::Language::kCuda, 32, path + ".cuda.cc");
    }
    return failed == 0 ? 0 : 1;
}
