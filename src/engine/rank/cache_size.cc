#include "engine/rank/cache_size.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/device.h"
#include "backend/device_list.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/rank_options.h"
#include "engine/rank/runner.h"
#include "model/model.h"
#include "model_files/draft_source.h"
#include "model_files/model_file.h"

namespace weft::engine {
namespace {

// Most of the free memory that the default KV cache takes.
constexpr double kCacheShare = 0.4;
// Most of the free memory for weights and cache together.
constexpr double kWeightsRoom = 0.9;

// Bytes per token of KV cache, with a draft model's.
Result<int64_t> CacheBytes(const Job& job, const EngineOptions& options,
                           const model_files::ModelSource& source, const model::Hyper& hyper) {
    const KvTypes types = KvTypesOf(job);
    const bool head = options.draft.head() && model::CheckDraftHead(hyper, source.name()).ok();
    WEFT_ASSIGN(int64_t bytes, model::CacheBytesPerToken(hyper, source, types, head));
    const std::string& draft = options.draft.model;
    if (!draft.empty() && !options.draft.head()) {
        WEFT_ASSIGN(const auto small, model_files::OpenModel(draft));
        WEFT_ASSIGN(const model::Hyper its, model::ReadHyper(*small));
        WEFT_ASSIGN(const int64_t more, model::CacheBytesPerToken(its, *small, types));
        bytes += more;
    }
    return std::max<int64_t>(1, bytes);
}

// Bytes for the default KV cache: a share of the free memory, beside the weights.
Result<double> CacheRoom(const Job& job, const model_files::ModelSource& source,
                         const model::Hyper& hyper, size_t hosts) {
    WEFT_ASSIGN(const program::HostOps host_ops, HostOpsOf(job, hyper));
    const std::string device = backend::DeviceNames(job.device)[0];
    uint64_t bytes = source.TotalBytes();
    if (device != backend::kDefaultDevice) bytes -= HostWeightBytes(source, host_ops);
    double weights = static_cast<double>(bytes) / static_cast<double>(std::max<size_t>(1, hosts));
    WEFT_ASSIGN(backend::MemoryPool pool,
                backend::DescribePool(device, static_cast<uint64_t>(weights / kWeightsRoom)));
    // A GPU that is too small for the experts (Rank::MayShareExperts).
    if (device == backend::kAutoDevice && job.experts.empty() && hyper.moe.experts > 0 &&
        pool.kind == backend::MemoryKind::kHost) {
        const program::HostOps experts{program::HostOps::kAllLayers, 0};
        const double others = weights - static_cast<double>(HostWeightBytes(source, experts)) /
                                            static_cast<double>(std::max<size_t>(1, hosts));
        WEFT_ASSIGN(const backend::MemoryPool gpu,
                    backend::DescribePool(device, static_cast<uint64_t>(others / kWeightsRoom)));
        if (gpu.kind == backend::MemoryKind::kDevice) {
            pool = gpu;
            weights = others;
        }
    }
    const auto free = static_cast<double>(pool.free_bytes);
    return std::min(kCacheShare * free, std::max(0.0, kWeightsRoom * free - weights));
}

// Tokens of KV cache for which a server has room.
Result<int64_t> TokensThatFit(const Job& job, const EngineOptions& options,
                              const model_files::ModelSource& source, const model::Hyper& hyper,
                              size_t hosts, size_t servers) {
    WEFT_ASSIGN(const double room, CacheRoom(job, source, hyper, hosts));
    WEFT_ASSIGN(const int64_t slot, model::StateBytesPerSlot(hyper, source));
    WEFT_ASSIGN(const int64_t each, CacheBytes(job, options, source, hyper));
    const double own = room / static_cast<double>(std::max<size_t>(1, servers)) -
                       static_cast<double>(slot * StateSlots(options));
    return static_cast<int64_t>(std::max(0.0, own) / static_cast<double>(each));
}

}  // namespace

Result<std::string> SizeCache(Job& job, const EngineOptions& asked, size_t hosts, size_t servers) {
    EngineOptions options = asked;
    options.draft = options.draft.Resolved();
    WEFT_ASSIGN(auto opened, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const auto source,
                model_files::WithDraftHead(std::move(opened),
                                           options.draft.separate_head ? options.draft.model : ""));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_TRY(model::CheckContext(hyper, job.ctx, fmt::format("--ctx {}", job.ctx)));
    WEFT_ASSIGN(const backend::DeviceInfo device,
                backend::DescribeDevice(backend::DeviceNames(job.device)[0]));
    const int64_t page = device.target.page_tokens;
    const auto whole = [&](int64_t tokens) { return (tokens + page - 1) / page * page; };
    const bool given = job.ctx > 0;
    if (hyper.encoder) job.kv_dtype = DType::kF32;  // a cache of few tokens need not be narrow
    int64_t fit = job.kv_tokens;
    if (fit == 0) {
        WEFT_ASSIGN(fit, TokensThatFit(job, options, *source, hyper, hosts, servers));
    }
    const int64_t usual = std::min(hyper.context, kDefaultContext);
    std::string why;
    if (!given) {
        const int64_t least = job.kv_tokens > 0 ? std::min(usual, job.kv_tokens) : usual;
        job.ctx = std::clamp(fit / page * page, least, hyper.context);
        why = job.ctx == hyper.context
                  ? "the model's own"
                  : fmt::format("of the model's {}, for which {} too small; --ctx sets it",
                                hyper.context,
                                job.kv_tokens > 0 ? "--kv-tokens is" : "the free memory is");
    }
    if (job.kv_tokens == 0) {
        // An encoder's cache holds the texts of one step.
        const int64_t all = hyper.encoder ? job.ctx + page * options.max_seqs
                                          : whole(given ? job.ctx : usual) * options.max_seqs;
        job.kv_tokens = std::clamp(fit, whole(job.ctx), std::max(whole(job.ctx), all));
    }
    job.ctx = std::min(whole(job.ctx), hyper.context);
    job.kv_tokens = whole(job.kv_tokens);
    if (hyper.encoder) job.chunk = std::max(job.chunk, job.ctx);  // a step takes whole texts
    if (job.kv_tokens < job.ctx) {
        return MakeError(ErrorCode::kUsage,
                         "--kv-tokens {}: one sequence of --ctx {} tokens would not fit",
                         job.kv_tokens, job.ctx);
    }
    return why;
}

}  // namespace weft::engine
