#include "engine/cache_size.h"

#include <algorithm>

#include "backend/device.h"
#include "backend/device_list.h"
#include "engine/runner.h"
#include "model/model.h"
#include "model_files/model_file.h"

namespace weft::engine {
namespace {

// Most of the free memory that the default KV cache takes.
constexpr double kCacheShare = 0.4;
// Most of a GPU's memory for weights and cache together.
constexpr double kWeightsRoom = 0.9;

// Bytes per token of KV cache, with a draft model's.
Result<int64_t> CacheBytes(const Job& job, const EngineOptions& options,
                           const model_files::ModelSource& source, const model::Hyper& hyper) {
    const DType type = job.reference ? DType::kF32 : job.kv_dtype;
    const bool head = options.draft.head() && hyper.draft_head;
    WEFT_ASSIGN(int64_t bytes, model::CacheBytesPerToken(hyper, source, type, head));
    const std::string& draft = options.draft.model;
    if (!draft.empty() && !options.draft.head()) {
        WEFT_ASSIGN(const auto small, model_files::OpenModel(draft));
        WEFT_ASSIGN(const model::Hyper its, model::ReadHyper(*small));
        WEFT_ASSIGN(const int64_t more, model::CacheBytesPerToken(its, *small, type));
        bytes += more;
    }
    return std::max<int64_t>(1, bytes);
}

// Bytes for the default KV cache. On a GPU, the weights come first and take most of the memory.
Result<double> CacheRoom(const Job& job, const model_files::ModelSource& source, size_t hosts) {
    const double weights =
        static_cast<double>(source.TotalBytes()) / static_cast<double>(std::max<size_t>(1, hosts));
    WEFT_ASSIGN(const backend::MemoryPool pool,
                backend::DescribePool(backend::DeviceNames(job.device)[0],
                                      static_cast<uint64_t>(weights / kWeightsRoom)));
    const auto free = static_cast<double>(pool.free_bytes);
    if (pool.kind == backend::MemoryKind::kHost) return kCacheShare * free;
    return std::min(kCacheShare * free, std::max(0.0, kWeightsRoom * free - weights));
}

}  // namespace

Status SizeCache(Job& job, const EngineOptions& options, size_t hosts, size_t servers) {
    WEFT_TRY(CompleteJob(job));
    WEFT_ASSIGN(const auto source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_TRY(model::CheckContext(hyper, job.ctx, fmt::format("--ctx {}", job.ctx)));
    WEFT_ASSIGN(const backend::DeviceInfo device,
                backend::DescribeDevice(backend::DeviceNames(job.device)[0]));
    const int64_t page = device.target.page_tokens;
    const int64_t whole = (job.ctx + page - 1) / page * page;
    job.ctx = std::min(whole, hyper.context);
    if (job.kv_tokens == 0) {
        const int64_t all = whole * options.max_seqs;
        WEFT_ASSIGN(const double all_room, CacheRoom(job, *source, hosts));
        WEFT_ASSIGN(const int64_t slot, model::StateBytesPerSlot(hyper, *source));
        const double room =
            std::max(0.0, all_room / static_cast<double>(std::max<size_t>(1, servers)) -
                              static_cast<double>(slot * StateSlots(options)));
        WEFT_ASSIGN(const int64_t each, CacheBytes(job, options, *source, hyper));
        job.kv_tokens =
            std::clamp(static_cast<int64_t>(room / static_cast<double>(each)), whole, all);
    }
    job.kv_tokens = (job.kv_tokens + page - 1) / page * page;
    if (job.kv_tokens < job.ctx) {
        return MakeError(ErrorCode::kUsage,
                         "--kv-tokens {}: one sequence of --ctx {} tokens would not fit",
                         job.kv_tokens, job.ctx);
    }
    return {};
}

}  // namespace weft::engine
