// weft run MODEL at a terminal: a conversation.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/model_words.h"
#include "engine/batch/step_drafts.h"
#include "engine/request.h"

namespace weft::cli {

struct ChatOptions {
    std::string system;
    engine::Request settings;  // sampling and length of each answer, and its adapter
    std::string hinted_by;     // the file that the sampling comes from; empty: none
};

// Asks and answers until the user ends it. flags: resolved. words: the model's. Errors: those of a
// job; kUsage: the model has no chat template; kCancelled: SIGTERM.
Status RunChat(CommonFlags& flags, const ModelWords& words, const ChatOptions& chat,
               const engine::DraftOptions& draft);

}  // namespace weft::cli
