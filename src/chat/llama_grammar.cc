// Llama 3: a call is JSON without markers (<|python_tag|> may precede it). Calls are therefore
// recognized where models write them: at the answer's start, on a line of its own, or after another
// call. Llama 4 may put text between <|python_start|> and <|python_end|> before its calls.
#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/answer_grammar.h"
#include "chat/literals.h"
#include "chat/stretch.h"
#include "chat/value_scan.h"

namespace weft::chat {
namespace {

constexpr std::string_view kLlamaTag = "<|python_tag|>";
constexpr std::string_view kLlama4Begin = "<|python_start|>", kLlama4End = "<|python_end|>";
constexpr std::string_view kLlamaFunction = "<function=";
constexpr std::string_view kLlamaFunctionEnd = "</function>";
constexpr std::string_view kLlamaBlanks = " \t\r\n";

enum class Likely { kYes, kNo, kUnknown };

// Judges by its first key whether an object may be a call.
Likely IsCallBegin(std::string_view text) {
    constexpr std::string_view kKeys[] = {"\"name\"",       "\"type\"",      "\"function\"",
                                          "\"parameters\"", "\"arguments\"", "\"id\""};
    const size_t at = text.find_first_not_of(kLlamaBlanks, 1);
    if (at == text.npos) return Likely::kUnknown;
    const std::string_view rest = text.substr(at);
    for (const std::string_view key : kKeys) {
        if (rest.starts_with(key)) return Likely::kYes;
        if (key.starts_with(rest)) return Likely::kUnknown;
    }
    return Likely::kNo;
}

class LlamaGrammar : public AnswerParser::Grammar {
  public:
    explicit LlamaGrammar(GrammarOptions options) : options_(std::move(options)) {
        if (!options_.wants_calls()) return;
        markers_.push_back(kLlamaTag);
        markers_.push_back(kLlamaFunction);
    }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (place_ != Place::kText && held_.size() > AnswerParser::kMostHeldBytes) {
            ShowHeld(held_.size(), delta);
        }
    }

    void Finish(AnswerDelta& delta) override {
        over_ = true;
        while (Step(delta)) {
        }
        ShowHeld(held_.size(), delta);
        content_.End(delta.content);
    }

  private:
    // State: what held_ begins with.
    enum class Place {
        kText,      // plain text
        kObject,    // "{", possibly a call
        kList,      // "[", possibly a list of Python calls
        kFunction,  // "<function="
        kTagged,    // text after <|python_tag|>
        kBehind,    // text after a call
    };

    bool Step(AnswerDelta& delta) {
        switch (place_) {
            case Place::kText: return StepText(delta);
            case Place::kObject: return StepObject(delta);
            case Place::kList: return StepList(delta);
            case Place::kFunction: return StepFunction(delta);
            case Place::kTagged:
            case Place::kBehind: return StepBehind(delta);
        }
        return false;
    }

    // The first "{" or "[" at the start of a line.
    size_t FindLine() const {
        if (!options_.wants_calls()) return held_.npos;
        bool begins = line_begins_;
        for (size_t at = 0; at < held_.size(); ++at) {
            const char c = held_[at];
            if (begins && (c == '{' || c == '[')) return at;
            if (c == '\n') begins = true;
            if (kLlamaBlanks.find(c) == kLlamaBlanks.npos) begins = false;
        }
        return held_.npos;
    }

    bool StepText(AnswerDelta& delta) {
        const FoundMarker found = FindMarker(held_, markers_);
        const size_t line = FindLine();
        if (line < found.at) {
            Show(line, delta);
            Begin(held_[0] == '{' ? Place::kObject : Place::kList, "");
            return true;
        }
        if (found.at == held_.npos) {
            Show(held_.size() - BegunAtEnd(held_, markers_), delta);
            return false;
        }
        Show(found.at, delta);
        const std::string_view marker = markers_[found.marker];
        if (marker == kLlamaFunction) {
            Begin(Place::kFunction, "");
            return true;
        }
        held_.erase(0, marker.size());
        if (marker == kLlamaTag) Begin(Place::kTagged, kLlamaTag);
        if (marker == kLlama4End && options_.wants_calls()) {
            Begin(Place::kBehind, "");
            sure_ = true;
        }
        return true;
    }

    // shown: text before it, to restore if it is not a call.
    void Begin(Place place, std::string_view shown) {
        place_ = place;
        shown_ = shown;
        scan_ =
            ValueScan(place == Place::kList ? ValueScan::Style::kPython : ValueScan::Style::kJson);
        scanned_ = 0;
    }

    // Emits the first `size` bytes as content.
    void Show(size_t size, AnswerDelta& delta) {
        const std::string_view text = std::string_view(held_).substr(0, size);
        const size_t line = text.rfind('\n');
        const std::string_view last = line == text.npos ? text : text.substr(line + 1);
        const bool blank = last.find_first_not_of(kLlamaBlanks) == last.npos;
        line_begins_ = blank && (line_begins_ || line != text.npos);
        if (!text.empty()) first_ = first_ && blank && line == text.npos;
        content_.Add(text, delta.content);
        held_.erase(0, size);
    }

    // Emits `shown_` and the first `size` bytes as content.
    bool ShowHeld(size_t size, AnswerDelta& delta) {
        content_.Add(std::exchange(shown_, {}), delta.content);
        place_ = Place::kText;
        if (size > 0) line_begins_ = first_ = false;
        Show(size, delta);
        return true;
    }

    bool Called(std::vector<ToolCall> calls, size_t size, AnswerDelta& delta) {
        for (ToolCall& call : calls) delta.tool_calls.push_back(std::move(call));
        held_.erase(0, size);
        content_.Cut();
        Begin(Place::kBehind, "");
        sure_ = true;
        return true;
    }

    // End of the value at the start of held_; 0: incomplete.
    size_t ValueEnd() {
        scan_.Feed(std::string_view(held_).substr(scanned_));
        scanned_ = held_.size();
        return scan_.done() ? scan_.end() : 0;
    }

    // A call recognized only by its function's name must name an offered function.
    bool IsKnown(const std::string& name) const {
        return options_.tools != nullptr && options_.tools->Has(name);
    }

    bool StepObject(AnswerDelta& delta) {
        switch (IsCallBegin(held_)) {
            case Likely::kNo: return ShowHeld(1, delta);
            case Likely::kUnknown: return over_ ? ShowHeld(1, delta) : false;
            case Likely::kYes: break;
        }
        const size_t end = ValueEnd();
        if (end == 0) return false;
        Calls calls = ReadLlamaCalls(std::string_view(held_).substr(0, end));
        const bool sure = first_ || sure_ || !shown_.empty();
        if (!calls || (!sure && !IsKnown((*calls)[0].name))) return ShowHeld(end, delta);
        return Called(std::move(*calls), end, delta);
    }

    bool StepList(AnswerDelta& delta) {
        const std::string_view text = held_;
        const size_t name = text.find_first_not_of(kLlamaBlanks, 1);
        const size_t open = text.find_first_of("(,\"'{[]", 1);
        if (open == text.npos || name == text.npos) {
            const bool longer = text.size() < 300 && !over_;  // longer than any name
            return longer ? false : ShowHeld(1, delta);
        }
        const bool known = text[open] == '(' && name < open &&
                           IsKnown(std::string(text.substr(name, open - name)));
        if (!known) return ShowHeld(1, delta);
        const size_t end = ValueEnd();
        if (end == 0) return false;
        Calls calls = ReadPythonCalls(text.substr(0, end));
        const bool all = calls && std::ranges::all_of(*calls, [&](const ToolCall& call) {
                             return IsKnown(call.name);
                         });
        return all ? Called(std::move(*calls), end, delta) : ShowHeld(end, delta);
    }

    bool StepFunction(AnswerDelta& delta) {
        const std::string_view text = held_;
        const size_t end = text.find(kLlamaFunctionEnd);
        if (end == text.npos && !over_) return false;
        const size_t size =
            std::min(text.size(), end == text.npos ? end : end + kLlamaFunctionEnd.size());
        Calls calls = ReadBareFunction(text.substr(0, size), options_.types());
        return calls ? Called(std::move(*calls), size, delta) : ShowHeld(size, delta);
    }

    // After a call: another call, or content.
    bool StepBehind(AnswerDelta& delta) {
        const size_t at = held_.find_first_not_of(" \t\r\n;,");
        if (at == held_.npos && !over_) return false;
        const bool object = at != held_.npos && held_[at] == '{';
        if (!object) {
            const bool tagged = place_ == Place::kTagged;
            place_ = Place::kText;
            sure_ = false;
            if (tagged) content_.Add(std::exchange(shown_, {}), delta.content);
            return true;
        }
        const std::string shown = shown_ + held_.substr(0, at);
        held_.erase(0, at);
        Begin(Place::kObject, shown);
        return true;
    }

    const GrammarOptions options_;
    std::vector<std::string_view> markers_ = {"<|eot_id|>", "<|eom_id|>", "<|eot|>",
                                              "<|eom|>",    kLlama4Begin, kLlama4End};
    std::string held_, shown_;
    ValueScan scan_;
    size_t scanned_ = 0;
    Place place_ = Place::kText;
    bool line_begins_ = true;
    bool first_ = true;  // only white space so far
    bool sure_ = false;  // after a call, another one is likely
    bool over_ = false;  // the answer has ended
    Stretch content_;
};

}  // namespace

std::unique_ptr<AnswerParser::Grammar> MakeLlamaGrammar(GrammarOptions options) {
    return std::make_unique<LlamaGrammar>(std::move(options));
}

}  // namespace weft::chat
