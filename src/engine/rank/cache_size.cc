#include "engine/rank/cache_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "backend/device.h"
#include "backend/device_list.h"
#include "engine/rank/runner.h"
#include "model_files/draft_source.h"
#include "model_files/model_file.h"

namespace weft::engine {
namespace {

// Maximum share of the free memory for the default KV cache.
constexpr double kCacheShare = 0.4;
// Most of the free memory for all that ranks need.
constexpr double kMostFull = 0.9;

// The limit of --kv-tokens.
constexpr int64_t kMostOfCache = int64_t{1} << 31;

int64_t WholePages(int64_t tokens, int64_t page) {
    return (tokens + page - 1) / page * page;
}

}  // namespace

int64_t TokensThatFit(std::span<const CacheSpace> rooms, double share) {
    struct Sum {
        double free = 0, fixed = 0, token = 0;
    };
    std::map<std::string_view, Sum> sums;
    for (const CacheSpace& room : rooms) {
        Sum& sum = sums[room.memory];
        sum.free = std::max(sum.free, static_cast<double>(room.free_bytes));
        sum.fixed += static_cast<double>(room.fixed_bytes);
        sum.token += static_cast<double>(room.token_bytes);
    }
    double fit = static_cast<double>(std::numeric_limits<int32_t>::max());
    for (const auto& [memory, sum] : sums) {
        if (sum.token == 0) continue;
        const double own = std::min(kCacheShare * sum.free, kMostFull * sum.free - sum.fixed);
        fit = std::min(fit, std::max(0.0, own) * (share / kCacheShare) / sum.token);
    }
    return static_cast<int64_t>(fit);
}

Result<bool> SizeCache(Job& job, const EngineOptions& asked, size_t servers) {
    const DraftOptions draft = asked.draft.Resolved();
    WEFT_ASSIGN(auto opened, model_files::OpenModel(job.model));
    WEFT_ASSIGN(const auto source, model_files::WithDraftHead(
                                       std::move(opened), draft.separate_head ? draft.model : ""));
    WEFT_ASSIGN(const model::Hyper hyper, model::ReadHyper(*source));
    WEFT_TRY(model::CheckContext(hyper, job.ctx, fmt::format("--ctx {}", job.ctx)));
    WEFT_ASSIGN(const backend::DeviceInfo device,
                backend::DescribeDevice(backend::DeviceNames(job.device)[0]));
    const int64_t page = device.target.page_tokens;
    const int64_t usual = std::min(hyper.context, kDefaultContext);
    const bool given = job.ctx > 0;
    if (hyper.encoder) job.kv_dtype = DType::kF32;  // a cache of few tokens need not be narrow
    job.fits_ctx = !given && job.kv_tokens == 0;
    if (job.fits_ctx) {
        job.ctx = hyper.context;
    } else if (!given) {
        job.ctx =
            std::clamp(job.kv_tokens / page * page, std::min(usual, job.kv_tokens), hyper.context);
    }
    job.cache_share = 0;
    if (job.kv_tokens == 0) {
        // An encoder's cache holds the texts of one step.
        const int64_t all = hyper.encoder
                                ? job.ctx + page * asked.max_seqs
                                : WholePages(given ? job.ctx : usual, page) * asked.max_seqs;
        job.kv_tokens = std::max(job.ctx, std::min(all, kMostOfCache));
        job.cache_share = kCacheShare / static_cast<double>(std::max<size_t>(1, servers));
    }
    job.ctx = std::min(WholePages(job.ctx, page), hyper.context);
    job.kv_tokens = WholePages(job.kv_tokens, page);
    if (hyper.encoder) job.chunk = std::max(job.chunk, job.ctx);  // a step has whole texts
    if (job.kv_tokens < job.ctx) {
        return MakeError(ErrorCode::kUsage,
                         "--kv-tokens {}: one sequence of --ctx {} tokens would not fit",
                         job.kv_tokens, job.ctx);
    }
    return !given;
}

void FitCache(Job& job, const model::Hyper& hyper, int64_t page, int64_t tokens) {
    if (job.cache_share == 0) return;
    if (job.fits_ctx) {
        const int64_t least = std::min(job.ctx, kDefaultContext);
        job.ctx = std::min(WholePages(std::clamp(tokens / page * page, least, job.ctx), page),
                           hyper.context);
    }
    // (A step of an encoder has the rows of its texts, which the cache limits.)
    const int64_t rows = hyper.encoder ? 0 : std::min(job.chunk, job.kv_tokens);
    const int64_t least = WholePages(std::max(job.ctx, rows), page);
    job.kv_tokens = std::clamp(tokens / page * page, least, std::max(least, job.kv_tokens));
}

std::string WhyContext(const Job& job, const model::Hyper& hyper) {
    if (job.ctx == hyper.context) return "the model's own";
    return fmt::format("of the model's {}, for which {} too small; --ctx sets it", hyper.context,
                       job.cache_share == 0 ? "--kv-tokens is" : "the free memory is");
}

}  // namespace weft::engine
