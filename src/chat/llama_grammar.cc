// Llama 3: a call is JSON without markers (<|python_tag|> may precede it). Calls are therefore
// recognized where models write them: at the answer's start, on a line of its own, or after another
// call. Llama 4 may put text between <|python_start|> and <|python_end|> before its calls. xLAM 2:
// a list of calls in JSON. GLM-4: a line with the name of a function, then its arguments.
#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/answer_grammar.h"
#include "chat/stretch.h"
#include "chat/template/literals.h"
#include "chat/template/value_scan.h"

namespace weft::chat {
namespace {

constexpr std::string_view kLlamaTag = "<|python_tag|>";
constexpr std::string_view kLlama4Begin = "<|python_start|>", kLlama4End = "<|python_end|>";
constexpr std::string_view kLlamaFunction = "<function=";
constexpr std::string_view kLlamaFunctionEnd = "</function>";
constexpr std::string_view kLlamaBlanks = " \t\r\n";
constexpr std::string_view kGlmThink = "<think>", kGlmThinkEnd = "</think>";
constexpr std::string_view kGlmAnswer = "<|assistant|>";

// Judges by its first key whether an object may be a call.
Likely IsCallBegin(std::string_view text) {
    constexpr std::string_view kCallKeys[] = {"\"name\"",       "\"type\"",      "\"function\"",
                                              "\"parameters\"", "\"arguments\"", "\"id\""};
    const size_t at = text.find_first_not_of(kLlamaBlanks, 1);
    if (at == text.npos) return Likely::kUnknown;
    const std::string_view rest = text.substr(at);
    for (const std::string_view key : kCallKeys) {
        if (rest.starts_with(key)) return Likely::kYes;
        if (key.starts_with(rest)) return Likely::kUnknown;
    }
    return Likely::kNo;
}

class LlamaGrammar : public AnswerParser::Grammar {
  public:
    LlamaGrammar(ToolCallFormat family, GrammarOptions options)
        : family_(family), options_(std::move(options)) {
        if (family == ToolCallFormat::kJsonList) markers_ = {"<|im_end|>", "<|endoftext|>"};
        if (family == ToolCallFormat::kGlm4) {
            markers_ = {kGlmThink,  kGlmThinkEnd,      kGlmAnswer,
                        "<|user|>", "<|observation|>", "<|endoftext|>"};
            if (options_.in_reasoning) Think(true);
        }
        if (options_.wants_calls() && family == ToolCallFormat::kLlama3) {
            markers_.push_back(kLlamaTag);
            markers_.push_back(kLlamaFunction);
        }
        for (const std::string_view marker : markers_) {
            control_.push_back(options_.IsControl(marker));
        }
    }

    bool Takes(std::string_view token) const override { return Touches(token, markers_); }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (place_ != Place::kText && held_.size() > AnswerParser::kMostHeldBytes) {
            ShowHeld(held_.size(), delta);
        }
    }

    void Finish(bool /*ended*/, AnswerDelta& delta) override {
        over_ = true;
        while (Step(delta)) {
        }
        ShowHeld(held_.size(), delta);
        content_.End(delta.content);
    }

    bool in_reasoning() const override { return in_reasoning_; }

  private:
    // State: what held_ begins with.
    enum class Place {
        kText,      // plain text
        kObject,    // "{", possibly a call
        kList,      // "[", possibly a list of Python calls
        kFunction,  // "<function="
        kName,      // a line that may be a function's name (GLM-4)
        kTagged,    // text after <|python_tag|>
        kBehind,    // text after a call
    };

    bool Step(AnswerDelta& delta) {
        switch (place_) {
            case Place::kText: return StepText(delta);
            case Place::kObject: return StepObject(delta);
            case Place::kList: return StepList(delta);
            case Place::kFunction: return StepFunction(delta);
            case Place::kName: return StepName(delta);
            case Place::kTagged:
            case Place::kBehind: return StepBehind(delta);
        }
        return false;
    }

    // The position at which a call may begin: the first "{" or "[" at the start of a line; for
    // GLM-4, a line that begins like a function's name.
    size_t FindLine() const {
        if (!options_.wants_calls() || in_reasoning_) return held_.npos;
        const std::string_view begins_call = family_ == ToolCallFormat::kJsonList ? "[" : "{[";
        bool begins = line_begins_, first = first_;
        for (size_t at = 0; at < held_.size(); ++at) {
            const char c = held_[at];
            const bool blank = kLlamaBlanks.find(c) != kLlamaBlanks.npos;
            const bool glm = IsGlm();
            if (begins && glm && !blank && MayName(LineAt(at), first)) return at;
            if (begins && !glm && begins_call.find(c) != begins_call.npos) return at;
            if (c == '\n') begins = true;
            if (!blank) begins = first = false;
        }
        return held_.npos;
    }

    std::string_view LineAt(size_t at) const {
        const std::string_view rest = std::string_view(held_).substr(at);
        return rest.substr(0, rest.find('\n'));
    }

    // Whether the line, which may still grow, may be a function's name.
    bool MayName(std::string_view line, bool first) const {
        const bool ended = line.data() + line.size() != held_.data() + held_.size();
        const std::string_view name = TrimBlanks(line);
        if (options_.tools == nullptr) return first && IsCallName(name);
        return ended ? IsKnown(std::string(name)) : options_.tools->Begins(name);
    }

    // Whether the marker at `at` is one.
    Likely Counts(std::string_view marker, size_t at) const {
        const bool begins = first_ && TrimBlanks(std::string_view(held_).substr(0, at)).empty();
        const auto likely = [](bool yes) { return yes ? Likely::kYes : Likely::kNo; };
        if (marker == kLlamaFunction || marker == kLlamaTag) return Likely::kYes;
        if (marker == kGlmThink) return likely(begins && !thought_);
        if (marker == kGlmThinkEnd) return likely(in_reasoning_ || (begins && !thought_));
        if (marker == kLlama4Begin) return likely(begins);
        if (marker == kLlama4End) return likely(beside_);
        if (marker == kGlmAnswer && begins) return Likely::kYes;
        return OnlyMarkers(held_, at + marker.size(), markers_, {}, over_);
    }

    bool StepText(AnswerDelta& delta) {
        if (options_.verbatim && said_ && !in_reasoning_) {
            Show(held_.size(), delta);
            return false;
        }
        const FoundMarker found = FindMarker(held_, markers_);
        const size_t line = FindLine();
        const size_t plain = std::min({line, found.at, held_.size() - BegunAtEnd(held_, markers_)});
        const bool says = !TrimBlanks(std::string_view(held_).substr(0, plain)).empty();
        if (options_.verbatim && !in_reasoning_ && says) {
            Show(plain, delta);
            return true;
        }
        if (line < found.at) {
            Show(line, delta);
            Begin(family_ == ToolCallFormat::kGlm4 ? Place::kName
                  : held_[0] == '{'                ? Place::kObject
                                                   : Place::kList,
                  "");
            return true;
        }
        if (found.at == held_.npos) {
            Show(held_.size() - BegunAtEnd(held_, markers_), delta);
            return false;
        }
        const std::string_view marker = markers_[found.marker];
        const Likely counts = control_[found.marker] ? Likely::kYes : Counts(marker, found.at);
        Show(found.at + (counts == Likely::kNo ? marker.size() : 0), delta);
        if (counts != Likely::kYes) return counts == Likely::kNo;
        if (marker == kLlamaFunction) {
            Begin(Place::kFunction, "");
            return true;
        }
        held_.erase(0, marker.size());
        if (marker == kGlmThink) Think(true);
        if (marker == kGlmThinkEnd) Think(false);
        if (marker == kGlmAnswer) NextMessage();
        if (marker == kLlama4Begin) beside_ = true;
        if (marker == kLlamaTag) Begin(Place::kTagged, kLlamaTag);
        if (marker == kLlama4End && options_.wants_calls()) {
            Begin(Place::kBehind, "");
            sure_ = true;
        }
        return true;
    }

    void Think(bool begins) {
        in_reasoning_ = begins;
        thought_ = true;
        reasoning_.Cut();
        NextMessage();
    }

    void NextMessage() {
        content_.Cut();
        line_begins_ = first_ = true;
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
        const bool words = !TrimBlanks(text).empty();
        first_ = first_ && !words;
        if (in_reasoning_) {
            reasoning_.Add(text, delta.reasoning);
        } else {
            said_ = said_ || words;
            content_.Add(text, delta.content);
        }
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
        Begin(IsGlm() ? Place::kText : Place::kBehind, "");
        if (IsGlm()) NextMessage();
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

    // A list of calls in JSON (xLAM 2), if `text` begins so.
    bool StepJsonList(std::string_view text, size_t open, AnswerDelta& delta) {
        switch (IsCallBegin(text.substr(open))) {
            case Likely::kNo: return ShowHeld(1, delta);
            case Likely::kUnknown: return over_ ? ShowHeld(1, delta) : false;
            case Likely::kYes: break;
        }
        const size_t end = ValueEnd();
        if (end == 0) return false;
        Calls calls = ReadCallList(text.substr(0, end), options_.types());
        const bool all = calls && std::ranges::all_of(*calls, [&](const ToolCall& call) {
                             return options_.tools == nullptr ? first_ : IsKnown(call.name);
                         });
        return all ? Called(std::move(*calls), end, delta) : ShowHeld(end, delta);
    }

    // NAME, a line end, and a JSON object.
    bool StepName(AnswerDelta& delta) {
        const std::string_view text = held_;
        const size_t line = text.find('\n');
        if (line == text.npos) {
            const bool may = !over_ && MayName(text, first_);
            return may ? false : ShowHeld(1, delta);  // the rest may hold markers
        }
        const std::string_view name = TrimBlanks(text.substr(0, line));
        const size_t open = text.find_first_not_of(kLlamaBlanks, line);
        if (open == text.npos && !over_) return false;
        if (open == text.npos || text[open] != '{' || !MayName(text.substr(0, line), first_)) {
            return ShowHeld(line + 1, delta);
        }
        const size_t end = ValueEnd();
        if (end == 0) return over_ ? ShowHeld(text.size(), delta) : false;
        OrderedJson arguments = ReadWrittenJson(text.substr(open, end - open));
        if (!arguments.is_object()) return ShowHeld(end, delta);
        std::vector<ToolCall> calls;
        calls.push_back({std::string(name), std::move(arguments)});
        return Called(std::move(calls), end, delta);
    }

    bool IsGlm() const { return family_ == ToolCallFormat::kGlm4; }

    bool StepList(AnswerDelta& delta) {
        const std::string_view text = held_;
        const size_t name = text.find_first_not_of(kLlamaBlanks, 1);
        const size_t open = text.find_first_of("(,\"'{[]", 1);
        if (open == text.npos || name == text.npos) {
            const bool longer = text.size() < 300 && !over_;  // longer than any name
            return longer ? false : ShowHeld(1, delta);
        }
        if (text[open] == '{' && name == open) return StepJsonList(text, open, delta);
        const bool known = text[open] == '(' && name < open && family_ == ToolCallFormat::kLlama3 &&
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
        if (text.size() > kLlamaFunction.size() && !BeginsName(text[kLlamaFunction.size()])) {
            return ShowHeld(kLlamaFunction.size(), delta);
        }
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

    const ToolCallFormat family_;
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
    bool in_reasoning_ = false;
    bool thought_ = false;       // reasoning has begun
    bool beside_ = false;        // after kLlama4Begin
    bool said_ = false;          // content was passed on
    std::vector<bool> control_;  // by marker of markers_: it is a control token
    Stretch content_, reasoning_;
};

}  // namespace

std::unique_ptr<AnswerParser::Grammar> MakeLlamaGrammar(ToolCallFormat family,
                                                        GrammarOptions options) {
    return std::make_unique<LlamaGrammar>(family, std::move(options));
}

}  // namespace weft::chat
