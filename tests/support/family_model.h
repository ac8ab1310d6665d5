// Every tiny model with golden logits: the GGUF files of golden_models.h and golden_experts.h, and
// the folders of tests/data/families and tests/data/hf.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model_files/hf/folder.h"
#include "support/golden_experts.h"
#include "support/golden_models.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"

namespace weft::support {

enum class FamilyKind { kGguf, kExperts, kFolder };
struct FamilyCase {
    std::string name;
    FamilyKind kind;
};
inline void PrintTo(const FamilyCase& c, std::ostream* out) {
    *out << c.name;
}

inline std::vector<FamilyCase> FamilyCases() {
    std::vector<FamilyCase> cases;
    for (const GoldenCase& c : GoldenCases()) cases.push_back({c.name, FamilyKind::kGguf});
    for (const char* name : kExpertCases) cases.push_back({name, FamilyKind::kExperts});
    for (const std::string& name : CasesIn("/families")) {
        cases.push_back({name, FamilyKind::kFolder});
    }
    for (const std::string& name : CasesIn("/hf")) {  // most are the folders of the files above
        const bool known = std::ranges::count(cases, name, &FamilyCase::name) > 0;
        if (!known) cases.push_back({name, FamilyKind::kFolder});
    }
    return cases;
}

struct FamilyModel {
    std::unique_ptr<model_files::ModelSource> source;
    model::Hyper hyper;
    std::vector<int32_t> tokens;
    std::vector<float> logits;  // transformers' results for each token
};

// Writes the model of a case into `folder`, which does not exist yet, and opens it.
inline FamilyModel OpenFamily(const FamilyCase& c, const std::string& folder) {
    FamilyModel model;
    std::filesystem::create_directories(folder);
    const std::string path = folder + "/golden.gguf";
    if (c.kind == FamilyKind::kFolder) {
        const std::string own = TestData("/families/" + c.name + ".safetensors");
        const HfGolden golden(
            std::filesystem::exists(own) ? own : TestData("/hf/" + c.name + ".safetensors"));
        golden.Write(c.name, folder);
        WriteText(folder + "/tokenizer.json", SmallTokenizer());
        model.source = model_files::hf::OpenFolder(folder).value();
        model.tokens = golden.Tokens(c.name);
        model.logits = golden.Floats(c.name + "/logits");
    } else {
        const bool experts = c.kind == FamilyKind::kExperts;
        if (experts) WriteTinyGguf(path, ExpertGoldenFile(c.name));
        for (const GoldenCase& golden : GoldenCases()) {
            if (!experts && golden.name == c.name) WriteGolden(golden, path);
        }
        model.source = model_files::OpenModel(path).value();
        const char* shared = experts ? "/moe_logits.safetensors" : "/model_logits.safetensors";
        const GoldenFile golden(LogitsPath(c.name, shared));
        for (const float token : golden.Tensor(c.name + "/tokens")) {
            model.tokens.push_back(static_cast<int32_t>(token));
        }
        model.logits = golden.Tensor(c.name + "/logits");
    }
    model.hyper = model::ReadHyper(*model.source).value();
    return model;
}

}  // namespace weft::support
