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
    bool seeded = false;       // settings has the seed of every answer; false: a random one each
    std::string sampling_by;   // where the sampling values come from
};

// Asks and answers until the user ends it. flags: resolved. words: the model's. Errors: those of a
// job; kUsage: the model has no chat template; kCancelled: SIGTERM.
Status RunChat(CommonFlags& flags, const ModelWords& words, const ChatOptions& chat,
               const engine::DraftOptions& draft);

}  // namespace weft::cli
