// The answer as `weft run` shows it: first the reasoning, always between <think> and </think>,
// whichever markers the model itself uses; then the answer up to the first stop string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "cli/chat/chat_model.h"
#include "cli/terminal/output.h"
#include "engine/request.h"
#include "serve/api/content_stops.h"

namespace weft::cli {

// Shows "reading the prompt: 4096 of 30000 tokens, 12 s left", unless the prompt is computed.
void ShowProgress(const engine::PromptProgress& progress, ProgressLine& line);

class AnswerText {
  public:
    // Moves the request's stop strings into this object, which applies them to the answer only, and
    // makes the engine emit all markers. For a prompt without a chat (family kPlain), the request
    // stays unchanged.
    AnswerText(const ChatPrompt& prompt, engine::Request& request,
               const tokenizer::Tokenizer& tokenizer);

    // Returns the text that `text` adds. After a stop string: "", and stopped() is true. token: as
    // in chat::AnswerParser.
    std::string Push(std::string_view text, int32_t token = -1);
    // Ends the answer: returns text that was held back.
    std::string Finish();
    bool stopped() const { return stops_.stopped(); }
    // The answer without its reasoning, for the next turn's prompt.
    const std::string& content() const { return content_; }

  private:
    std::string Show(const chat::AnswerDelta& delta);

    chat::AnswerParser parser_;
    serve::ContentStops stops_;
    std::string content_;
    bool thinks_ = false;  // the reasoning is shown and not closed yet
};

}  // namespace weft::cli
