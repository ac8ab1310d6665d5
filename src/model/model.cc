#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/architecture.h"

namespace weft::model {
namespace {

// All architectures, by name.
const std::vector<const Architecture*>& Architectures() {
    static const std::vector<const Architecture*> all = [] {
        std::vector<const Architecture*> rows;
        for (const std::span<const Architecture>& family : AllFamilies()) {
            for (const Architecture& one : family) rows.push_back(&one);
        }
        std::ranges::sort(rows, {},
                          [](const Architecture* one) { return one->family.architecture; });
        return rows;
    }();
    return all;
}

// Checks the limits of the device's kernels.
Status CheckTarget(const Hyper& hyper, const std::string& model, const program::Target& target) {
    const auto check = [&](const char* what, int64_t value, int64_t most) -> Status {
        if (value <= most) return {};
        return MakeError(ErrorCode::kUnsupported, "{}: {} {}; the device supports at most {}",
                         model, value, what, most);
    };
    WEFT_TRY(check("experts in a layer", hyper.moe.experts, target.most_experts));
    WEFT_TRY(check("columns in a cached row of latent attention",
                   hyper.latent.rank + hyper.latent.rope, target.most_latent_columns));
    return check("columns in a cached row of an indexer", hyper.indexer.dim,
                 target.most_latent_columns);
}

}  // namespace

const Architecture* FindArchitecture(std::string_view name) {
    for (const Architecture* one : Architectures()) {
        if (one->family.architecture == name) return one;
    }
    return nullptr;
}

const Traits& TraitsOf(std::string_view name) {
    static constexpr Traits kDefaults;
    const Architecture* architecture = FindArchitecture(name);
    return architecture == nullptr ? kDefaults : architecture->traits;
}

std::string SupportedArchitectures() {
    std::string list;
    for (const Architecture* one : Architectures()) {
        list += (list.empty() ? "" : ", ") + std::string(one->family.architecture);
    }
    return list;
}

std::vector<Family> Families() {
    std::vector<Family> families;
    for (const Architecture* one : Architectures()) families.push_back(one->family);
    return families;
}

bool IsSupported(const std::string& architecture) {
    return FindArchitecture(architecture) != nullptr;
}

bool SupportsDraftHead(const std::string& architecture) {
    return TraitsOf(architecture).draft_head;
}

Status CheckDraftHead(const Hyper& hyper, const std::string& model) {
    if (hyper.draft_head || !hyper.head.empty()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--draft mtp: {} has no multi-token prediction head that Weft supports{}{}. "
                     "Use --draft MODEL, or --prompt-lookup",
                     model, hyper.draft_fault.empty() ? "" : ": ", hyper.draft_fault);
}

Result<program::Program> BuildProgram(const Hyper& hyper, const Shard& shard,
                                      const model_files::ModelSource& source,
                                      const BuildOptions& options) {
    const Architecture* architecture = FindArchitecture(hyper.architecture);
    if (architecture == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: architecture '{}' is not supported. Supported: {}.", source.name(),
                         hyper.architecture, SupportedArchitectures());
    }
    if (hyper.moe.experts > 0 && !architecture->experts) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a mixture of {} experts is not supported for architecture '{}'",
                         source.name(), hyper.moe.experts, hyper.architecture);
    }
    WEFT_TRY(CheckTarget(hyper, source.name(), options.target));
    Builder builder(hyper, shard, source, options);
    const program::ValueId x = builder.Layers(architecture->build, builder.Enter());
    builder.Leave(x);
    if (options.draft_head) {
        WEFT_TRY(CheckDraftHead(hyper, source.name()));
        if (!hyper.head.empty()) {
            WEFT_TRY(builder.AddSeparateHead());
        } else if (shard.last_stage()) {
            builder.EndDraftHead(architecture->build(builder, builder.BeginDraftHead(x)));
        } else {
            builder.RecvDraftHead();
        }
    }
    return std::move(builder).Finish();
}

Result<int64_t> CacheBytesPerToken(const Hyper& hyper, const model_files::ModelSource& source,
                                   KvTypes kv_dtype, bool draft_head) {
    BuildOptions options;
    options.kv_dtype = kv_dtype;
    options.outputs = Outputs::kHidden;
    options.draft_head = draft_head;
    WEFT_ASSIGN(const Layout layout, MakeLayout(1, 1, 1, {}));
    WEFT_ASSIGN(const ShardPlan plan, PlanShards(hyper, source, layout));
    WEFT_ASSIGN(const program::Program program,
                BuildProgram(hyper, plan.shards[0], source, options));
    return program::StateBytes(program, program::kLeastPage) / program::kLeastPage;
}

}  // namespace weft::model
