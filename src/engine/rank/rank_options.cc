#include "engine/rank/rank_options.h"

#include <algorithm>

#include "model/draft_head.h"

namespace weft::engine {

KvTypes KvTypesOf(const Job& job) {
    return job.reference ? DType::kF32 : job.kv_dtype;
}

Status CheckKvTypes(const model::Hyper& hyper, const KvTypes& types, const std::string& name) {
    const bool latent = hyper.latent.rank > 0;
    if (types.k != types.v && (latent || hyper.windowing.streams > 0)) {
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: this model has one cache for keys and values; --kv-dtype {} names two "
            "types. Use one type.",
            name, types.Name());
    }
    const auto check = [&](DType type, std::initializer_list<int64_t> columns) -> Status {
        const DTypeInfo& info = Info(type);
        for (const int64_t each : columns) {
            if (each % info.block_elements == 0) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{}: a {} KV cache needs heads of a multiple of {} dims; this model "
                             "has {}. Use --kv-dtype f16.",
                             name, info.name, info.block_elements, each);
        }
        return {};
    };
    // (Columns of 0 do not exist, or equal those of keys.)
    WEFT_TRY(check(types.k, {hyper.head_dim, hyper.windowed_heads.head_dim, hyper.indexer.dim,
                             latent ? hyper.latent.rank + hyper.latent.rope : 0}));
    if (latent) return {};
    const auto values = [](int64_t own, int64_t keys) { return own == 0 ? keys : own; };
    const model::HeadShape& windowed = hyper.windowed_heads;
    return check(types.v, {values(hyper.v_head_dim, hyper.head_dim),
                           values(windowed.v_head_dim, windowed.head_dim)});
}

model::BuildOptions BuildOptionsOf(const Job& job, const model::Layout& layout,
                                   const program::Target& target) {
    model::BuildOptions build;
    build.context = job.ctx;
    build.outputs = job.outputs;
    build.target = target;
    if (layout.pp > 1 && build.outputs == model::Outputs::kBoth) {
        build.outputs = model::Outputs::kLogits;
    }
    build.kv_dtype = KvTypesOf(job);
    build.draft_head = job.draft_head;
    return build;
}

backend::CompileOptions CompileOptionsOf(const Job& job, const model::Layout& layout,
                                         const program::Program& program,
                                         const program::Target& target, bool one_host) {
    backend::CompileOptions compile;
    compile.max_tokens = job.step_rows();
    compile.max_outputs = std::min(job.max_outputs, compile.max_tokens);
    compile.page_tokens = target.page_tokens;
    compile.kv_pages = (job.cache_tokens() + compile.page_tokens - 1) / compile.page_tokens;
    if (program::SlotBytes(program) > 0) compile.state_slots = job.state_slots;
    const model::DraftHeadOps head = model::DraftHeadOf(program);
    for (const program::ValueId result : {program.Find("logits"), program.Find("hidden"),
                                          head.state, head.made, head.logits, head.between}) {
        if (result != program::kNoValue) compile.keep.push_back(result);
    }
    // A value that the first stage sends lives until it is sent, while the previous step's result
    // arrives.
    for (const program::Op& op : program.ops) {
        if (!op.Is(program::Trait::kMessage) || compile.keep.empty()) continue;
        compile.keep.insert(compile.keep.end(), op.inputs.begin(), op.inputs.end());
    }
    compile.device_sum = job.device_sum;
    compile.overlap = job.overlap;
    if (one_host && job.overlap == backend::Overlap::kAuto) {
        compile.overlap = backend::Overlap::kNever;
    }
    if (layout.tp == 1) compile.overlap = backend::Overlap::kNever;
    return compile;
}

}  // namespace weft::engine
