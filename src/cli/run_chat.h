// weft run MODEL at a terminal: a conversation.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "engine/batch/step_drafts.h"
#include "engine/request.h"

namespace weft::cli {

// Asks and answers until the user ends it. flags: resolved. settings: sampling and length of each
// answer, and its adapter. Errors: those of a job; kUsage: the model has no chat template;
// kCancelled: SIGTERM.
Status RunChat(CommonFlags& flags, const std::string& system, const engine::Request& settings,
               const engine::DraftOptions& draft);

}  // namespace weft::cli
