// Facts of a model that commands need before any rank runs, to size the job.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/job.h"
#include "model/hyper.h"
#include "model_files/model_file.h"
#include "tokenizer/tokenizer.h"

namespace weft::cli {

struct ModelWords {
    std::unique_ptr<model_files::ModelSource> source;
    model::Hyper hyper;
    std::unique_ptr<tokenizer::Tokenizer> tokenizer;
};

// Reads only the header of job.model. Errors: errors of the file, kUnsupported for architectures
// that Weft lacks, kUsage for a job.ctx (--ctx) beyond the model's context.
Result<ModelWords> OpenWords(const engine::Job& job);

// Tokens of KV cache for `prompt` tokens and `more` after them (-1: as many as the model allows),
// in whole pages and at most the model's context. job.ctx (--ctx) overrides it unless it is 0.
// Errors: kUsage if the prompt does not fit.
Result<int64_t> ContextFor(const model::Hyper& hyper, int64_t prompt, int64_t more,
                           const engine::Job& job);

}  // namespace weft::cli
