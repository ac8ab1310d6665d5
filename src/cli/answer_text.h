// An answer as a reader of `weft run` sees it: reasoning between <think> and </think>, whatever
// markers the model's family has, then the answer up to the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "cli/chat_model.h"
#include "engine/request.h"
#include "serve/api/content_stops.h"

namespace weft::cli {

class AnswerText {
  public:
    // Takes the request's stop strings, which then count in the answer alone, and has the engine
    // tell all markers. A prompt that is not of a chat (family kPlain): the request stays as it is.
    AnswerText(const ChatPrompt& prompt, engine::Request& request);

    // What `text` adds. After a stop string, nothing, and stopped() is true.
    std::string Push(std::string_view text);
    // The end: what was held back.
    std::string Finish();
    bool stopped() const { return stops_.stopped(); }
    // The answer without its reasoning: what the next turn repeats.
    const std::string& content() const { return content_; }

  private:
    std::string Show(const chat::AnswerDelta& delta);

    chat::AnswerParser parser_;
    serve::ContentStops stops_;
    std::string content_;
    bool thinks_ = false;  // the reasoning is shown, and not yet closed
};

}  // namespace weft::cli
