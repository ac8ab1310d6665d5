#include "cli/chat/answer_text.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "chat/tool_types.h"

namespace weft::cli {
namespace {

std::vector<std::string> TakeStops(const ChatPrompt& prompt, engine::Request& request) {
    if (prompt.family == chat::ToolCallFormat::kPlain) return {};
    request.show_special = true;
    return std::exchange(request.stop, {});
}

}  // namespace

void ShowProgress(const engine::PromptProgress& progress, ProgressLine& line) {
    if (progress.processed >= progress.total) return;
    const double left_s = progress.left_s;
    line.Show(fmt::format("reading the prompt: {} of {} tokens{}", progress.processed,
                          progress.total,
                          left_s < 1 ? "" : fmt::format(", {:.0f} s left", left_s)));
}

// No functions are offered, so text that looks like a call is content.
AnswerText::AnswerText(const ChatPrompt& prompt, engine::Request& request,
                       const tokenizer::Tokenizer& tokenizer)
    : parser_(prompt.family, prompt.in_reasoning, false, std::make_shared<chat::ToolTypes>(), false,
              {.tokenizer = &tokenizer}),
      stops_(TakeStops(prompt, request)) {}

std::string AnswerText::Push(std::string_view text, int32_t token) {
    chat::AnswerDelta delta = parser_.Push(text, token);
    stops_.Cut(delta);
    return Show(delta);
}

std::string AnswerText::Finish() {
    chat::AnswerDelta delta = parser_.Finish();
    stops_.Cut(delta);
    delta.content += stops_.Flush();
    return Show(delta);
}

std::string AnswerText::Show(const chat::AnswerDelta& delta) {
    std::string shown;
    if (!delta.reasoning.empty()) {
        if (!thinks_) shown += "<think>\n";
        thinks_ = true;
        shown += delta.reasoning;
    }
    if (thinks_ && (!delta.content.empty() || stopped())) {
        thinks_ = false;
        shown += "\n</think>\n\n";
    }
    content_ += delta.content;
    return shown + delta.content;
}

}  // namespace weft::cli
