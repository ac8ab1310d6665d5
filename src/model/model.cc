#include "model/model.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::model {
namespace {

struct Architecture {
    std::string_view name;
    program::ValueId (*build)(Builder&, program::ValueId);
};

constexpr std::array kArchitectures = {
    Architecture{"llama", BuildLlama},
    Architecture{"qwen2", BuildQwen2},
    Architecture{"qwen3", BuildQwen3},
};

const Architecture* FindArchitecture(std::string_view name) {
    const auto found = std::ranges::find(kArchitectures, name, &Architecture::name);
    return found == kArchitectures.end() ? nullptr : &*found;
}

}  // namespace

std::string SupportedArchitectures() {
    std::string list;
    for (const Architecture& architecture : kArchitectures) {
        list += (list.empty() ? "" : ", ") + std::string(architecture.name);
    }
    return list;
}

bool IsSupported(const std::string& architecture) {
    return FindArchitecture(architecture) != nullptr;
}

Result<program::Program> BuildProgram(const Hyper& hyper, const Shard& shard,
                                      const formats::ModelSource& source,
                                      const BuildOptions& options) {
    const Architecture* architecture = FindArchitecture(hyper.architecture);
    if (architecture == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: architecture '{}' is not supported. Supported: {}.", source.name(),
                         hyper.architecture, SupportedArchitectures());
    }
    Builder builder(hyper, shard, source, options);
    builder.Leave(architecture->build(builder, builder.Enter()));
    return std::move(builder).Finish();
}

}  // namespace weft::model
