#include "cli/models/model_words.h"

#include <algorithm>

#include "backend/device.h"
#include "backend/device_list.h"
#include "model_files/read_tokenizer.h"

namespace weft::cli {
namespace {

// Tokens reserved for an answer without a limit: enough for a long answer, but less than a context
// of 128 Ki.
constexpr int64_t kOpenEnd = 4096;

}  // namespace

Result<ModelWords> OpenWords(const engine::Job& job) {
    ModelWords words;
    WEFT_ASSIGN(words.source, model_files::OpenModel(job.model));
    WEFT_ASSIGN(words.hyper, model::ReadHyper(*words.source));
    WEFT_TRY(model::CheckContext(words.hyper, job.ctx, fmt::format("--ctx {}", job.ctx)));
    WEFT_ASSIGN(words.tokenizer, model_files::LoadTokenizer(*words.source));
    return words;
}

Result<int64_t> ContextFor(const model::Hyper& hyper, int64_t prompt, int64_t more,
                           const engine::Job& job) {
    WEFT_ASSIGN(const backend::DeviceInfo device,
                backend::DescribeDevice(backend::DeviceNames(job.device)[0]));
    const int64_t page = device.target.page_tokens, asked = job.ctx;
    const int64_t needed = prompt + (more < 0 ? kOpenEnd : more);
    const int64_t ctx =
        asked > 0 ? asked : std::min((needed + page - 1) / page * page, hyper.context);
    if (prompt < ctx || (more == 0 && prompt == ctx)) return ctx;
    if (asked > 0) {
        return MakeError(ErrorCode::kUsage,
                         "the prompt has {} tokens; --ctx {} leaves no room for an answer. Raise "
                         "it, or shorten the prompt.",
                         prompt, asked);
    }
    return MakeError(ErrorCode::kUsage,
                     "the prompt has {} tokens; the model's trained context of {} tokens has no "
                     "room for an answer. Shorten the prompt, or use a model with a longer "
                     "context.",
                     prompt, hyper.context);
}

}  // namespace weft::cli
