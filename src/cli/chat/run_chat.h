// Runs a conversation at a terminal: weft run MODEL.
#pragma once

#include <string>

#include "base/result.h"
#include "chat/chat.h"
#include "cli/command_line/flags.h"
#include "cli/models/model_words.h"
#include "engine/batch/step_drafts.h"
#include "engine/request.h"

namespace weft::cli {

struct ChatOptions {
    std::string system;
    engine::Request settings;  // sampling, length and adapter of each answer
    bool seeded = false;       // settings has every answer's seed; false: random seeds
    std::string sampling_by;   // source of the sampling values
    chat::OrderedJson variables = chat::OrderedJson::object();  // of the chat template
};

// Reads questions and shows answers until the user ends the conversation. flags: resolved. words:
// the model's words. Errors: errors of a job; kUsage: the model has no chat template; kCancelled:
// SIGTERM.
Status RunChat(CommonFlags& flags, const ModelWords& words, const ChatOptions& chat,
               const engine::DraftOptions& draft);

}  // namespace weft::cli
