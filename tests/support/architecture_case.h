// A case that an architecture is tested as (model::Family::tested): a tiny model, tokens, and the
// logits that transformers computed (of an encoder, the hidden states).
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model_files/hf/folder.h"
#include "model_files/model_file.h"
#include "support/golden_experts.h"
#include "support/golden_models.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"

namespace weft::support {

struct ArchitectureCase {
    test::TempDir dir;
    std::unique_ptr<model_files::ModelSource> source;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
    int32_t second = -1;  // StepSequence::second

    explicit ArchitectureCase(const std::string& name) {
        std::string family = TestData("/families/" + name + ".safetensors");
        const std::string encoder = TestData("/encoders/" + name + ".safetensors");
        if (std::filesystem::exists(encoder)) family = encoder;
        const std::vector<GoldenCase> dense = GoldenCases();
        const auto found = std::ranges::find(dense, name, &GoldenCase::name);
        if (std::filesystem::exists(family)) {
            OpenFolder(HfGolden(family), name);
        } else if (found != dense.end()) {
            WriteGolden(*found, dir / "model.gguf");
            OpenFile(name, "/model_logits.safetensors");
        } else if (std::ranges::find(kExpertCases, name) != std::end(kExpertCases)) {
            WriteTinyGguf(dir / "model.gguf", ExpertGoldenFile(name));
            OpenFile(name, "/moe_logits.safetensors");
        } else {
            OpenFolder(HfGolden(), name);
        }
    }

  private:
    void OpenFolder(const HfGolden& golden, const std::string& name) {
        const std::string key = name + (golden.Has(name + "/hidden") ? "/hidden" : "/logits");
        ASSERT_TRUE(golden.Has(key)) << "no golden file has the case " << name;
        golden.Write(name, dir / "model");
        WriteText(dir / "model/tokenizer.json", SmallTokenizer());
        source = model_files::hf::OpenFolder(dir / "model").value();
        tokens = golden.Tokens(name);
        logits = golden.Floats(key);
        if (golden.Has(name + "/second")) {
            second = static_cast<int32_t>(golden.Floats(name + "/second")[0]);
        }
    }
    void OpenFile(const std::string& name, const std::string& shared) {
        source = model_files::OpenModel(dir / "model.gguf").value();
        const GoldenFile golden(LogitsPath(name, shared));
        for (const float token : golden.Tensor(name + "/tokens")) {
            tokens.push_back(static_cast<int32_t>(token));
        }
        logits = golden.Tensor(name + "/logits");
        ASSERT_FALSE(logits.empty()) << "no golden file has the case " << name;
    }
};

}  // namespace weft::support
