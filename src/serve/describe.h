// Facts about a model for the API, from the server's options and the model's file. The functions
// need no engine, so a server can also list models that are not loaded (serve/pool).
#pragma once

#include <string>

#include "base/result.h"
#include "model_files/model_file.h"
#include "serve/api/served.h"
#include "serve/server.h"
#include "tokenizer/tokenizer.h"

namespace weft::serve {

// Sets the names of the model and its adapters. Errors: kUsage if they are not distinct.
Status NameModels(const ServerOptions& options, Served& served);
// Sets `head`, `generates` and the sampling defaults. Errors: those of ReadEmbeddingHead;
// kUsage (sampling, pooling); kUnsupported (scores).
Status ReadHints(const ServerOptions& options, const model_files::ModelSource& source,
                 Served& served);
// Sets the chat template with all fields that are derived from it, the FIM tokens and the card.
// Without a usable template, chat_error has the reason. `tokenizer` outlives served.chat.
void ReadTemplate(const model_files::ModelSource& source, const tokenizer::Tokenizer& tokenizer,
                  Served& served);

// Opens the model of options.job and describes it without an engine. options.job.ctx is final. The
// result has no `chat`, since it keeps no tokenizer.
// Errors: those of OpenModel and of the tokenizer; kUnsupported: the architecture; kUsage.
Result<Served> DescribeUnloaded(const ServerOptions& options);

}  // namespace weft::serve
