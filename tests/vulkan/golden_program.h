// Programs of the golden models, for tests of how a Vulkan device executes them.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model_files/model_file.h"
#include "support/golden_experts.h"
#include "support/golden_models.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weft::backend::on_gpu {

struct GoldenName {
    std::string name;
    bool experts = false;
};

// A model in Q8_0, as wide as its blocks require; its products are in int8.
inline support::TinyFile IntegerFile(const GoldenName& c) {
    support::TinyFile file;
    if (c.experts) {
        file = support::ExpertGoldenFile(c.name);
    } else {
        file.hyper = support::OddHyper(c.name);
        file.hyper.ffn = 96;
    }
    file.dtype = DType::kQ8_0;
    file.hyper.hidden = 160;
    if (file.hyper.latent.rank > 0) {  // a row of the cache also has three blocks
        file.hyper.latent.value = file.hyper.latent.rope = file.hyper.rotary_dim = 32;
        file.hyper.head_dim = file.hyper.latent.nope + file.hyper.latent.rope;
    } else {
        file.hyper.head_dim = 32;
    }
    if (file.hyper.windowed_heads.head_dim > 0) file.hyper.windowed_heads = {3, 32, 32};
    return file;
}

// A model of a golden file, or an int8 model, and its Programs.
struct GoldenProgram {
    weft::test::TempDir dir;
    std::unique_ptr<model_files::ModelSource> source;
    model::Hyper hyper;
    explicit GoldenProgram(const GoldenName& c, bool integers = false) {
        const std::string path = dir / "golden.gguf";
        if (integers) {
            support::WriteTinyGguf(path, IntegerFile(c));
        } else if (c.experts) {
            support::WriteTinyGguf(path, support::ExpertGoldenFile(c.name));
        } else {
            const auto all = support::GoldenCases();
            support::WriteGolden(*std::ranges::find(all, c.name, &support::GoldenCase::name), path);
        }
        source = model_files::OpenModel(path).value();
        hyper = model::ReadHyper(*source).value();
    }
    std::vector<program::Program> Build(DType kv, int tp = 1) const {
        model::BuildOptions options;
        options.kv_dtype = kv;
        options.context = 64;
        options.target.float64_reductions = false;
        model::Layout layout;
        layout.tp = tp;
        return support::Build(hyper, *source, layout, options);
    }
    std::vector<int32_t> Tokens(size_t count) const {
        std::vector<int32_t> tokens(count);
        for (size_t i = 0; i < count; ++i) {
            tokens[i] = static_cast<int32_t>((i * 31 + 7) % static_cast<size_t>(hyper.vocab));
        }
        return tokens;
    }
};

}  // namespace weft::backend::on_gpu
