// Answers with markers around reasoning and calls.
#include <algorithm>
#include <utility>

#include "chat/answer_grammar.h"
#include "chat/answer_rules.h"
#include "chat/call_stream.h"
#include "chat/stretch.h"

namespace weft::chat {
namespace {

constexpr std::string_view kTagBlanks = " \t\r\n";

// Tracks tags in a call: a value is open until its closing tag arrives.
class OpenTags {
  public:
    // body: text up to the end marker `end`; it grows during a call.
    bool Inside(std::string_view body, std::string_view end) {
        if (close_.empty()) Find(body, end);
        if (close_.empty()) return false;
        return !TrimBlanks(body).ends_with(close_);
    }
    // Whether the call is complete although its end marker is missing.
    bool Whole(std::string_view body, std::string_view end) {
        return !Inside(body, end) && (close_ == "</function>" || close_.ends_with("invoke>"));
    }

  private:
    void Find(std::string_view body, std::string_view end) {
        constexpr std::pair<std::string_view, std::string_view> kTags[] = {
            {"<arg_key>", "</arg_value>"},
            {"<arg_key:opensource>", "</arg_value:opensource>"},
            {"<function=", "</function>"},
            {"<parameter=", "</parameter>"},
            {"<param name=", "</param>"},
            {"]<]minimax[>[<invoke", "]<]minimax[>[</invoke>"},
            {"<invoke", "</invoke>"},
            {"<\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9Cinvoke",
             "</\xEF\xBD\x9C"
             "DSML\xEF\xBD\x9Cinvoke>"},
            {"<\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9Cinvoke",
             "</\xEF\xBD\x9C"
             "GCML\xEF\xBD\x9Cinvoke>"}};
        for (const auto& [open, close] : kTags) {
            if (close == end || body.find(open) == body.npos) continue;
            close_ = close;
            return;
        }
    }
    std::string_view close_;
};

// State of the current call: its end and the parts already emitted.
struct OpenCall {
    const CallForm* form = nullptr;  // null: not in a call
    std::string shown{};             // text before the call, to restore if it is not a call
    ValueScan scan{};
    std::vector<std::string_view> ends{};
    OpenTags tags{};
    CallStream stream{};
    size_t scanned = 0;    // bytes scanned
    size_t searched = 0;   // no end marker begins before this offset
    bool tagged = false;   // tags and names instead of JSON
    bool skipped = false;  // an end marker was skipped as part of a string
};

class TagGrammar : public AnswerParser::Grammar {
  public:
    TagGrammar(AnswerRules rules, GrammarOptions options)
        : rules_(std::move(rules)), options_(std::move(options)) {
        if (!options_.wants_calls()) rules_.calls.clear();
        outside_ = {rules_.think_begin, rules_.think_end};
        for (const CallForm& form : rules_.calls) outside_.push_back(form.begin);
        outside_.insert(outside_.end(), rules_.dropped.begin(), rules_.dropped.end());
        if (options_.in_reasoning) Think();
    }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (call_.form != nullptr && held_.size() > AnswerParser::kMostHeldBytes) NoCall(delta);
    }

    void Finish(AnswerDelta& delta) override {
        over_ = true;
        while (Step(delta)) {
        }
        // An unbalanced quote hid the end marker: treat markers literally.
        while (call_.form != nullptr && call_.skipped && !call_.stream.begun() &&
               !ReadCalls(WithoutBegunEnd(), false)) {
            literal_ = true;
            call_.searched = call_.form->kept;
            call_.scanned = 0;
            call_.scan = ValueScan(call_.form->style);
            call_.skipped = false;
            while (Step(delta)) {
            }
        }
        if (call_.form != nullptr) {
            const std::string body(WithoutBegunEnd());
            EndCall(body, held_.substr(body.size()), false, delta);
        } else {
            Out(held_, delta);
        }
        held_.clear();
        content_.End(delta.content);
    }

    bool in_reasoning() const override { return in_reasoning_; }

  private:
    // The current call, without a partial end marker.
    std::string_view WithoutBegunEnd() const {
        const std::vector<std::string_view> ends(!call_.form->end.empty(), call_.form->end);
        return std::string_view(held_).substr(0, held_.size() - BegunAtEnd(held_, ends));
    }

    void Think() {
        in_reasoning_ = true;
        content_.Cut();
        reasoning_.Cut();
    }

    void Out(std::string_view text, AnswerDelta& delta) {
        if (in_reasoning_) return reasoning_.Add(text, delta.reasoning);
        shown_ = shown_ || !TrimBlanks(text).empty();
        content_.Add(text, delta.content);
    }

    // Consumes one marker and the text before it, or one call. Returns false if it needs more text.
    bool Step(AnswerDelta& delta) {
        if (call_.form != nullptr) return StepInCall(delta);
        if (again_ != nullptr && !StepBehindCall()) return false;
        if (call_.form != nullptr) return true;
        if (options_.verbatim && shown_ && !in_reasoning_) {
            Out(std::exchange(held_, {}), delta);
            return false;
        }
        const FoundMarker found = FindMarker(held_, outside_);
        if (found.at == std::string::npos) {
            const size_t known = held_.size() - BegunAtEnd(held_, outside_);
            Out(std::string_view(held_).substr(0, known), delta);
            held_.erase(0, known);
            return false;
        }
        Out(std::string_view(held_).substr(0, found.at), delta);
        held_.erase(0, found.at);
        if (options_.verbatim && shown_ && !in_reasoning_) return true;
        const std::string_view marker = outside_[found.marker];
        held_.erase(0, marker.size());
        Marker(marker, delta);
        return true;
    }

    void Marker(std::string_view marker, AnswerDelta& delta) {
        if (marker == rules_.think_begin) {
            if (!rules_.think_first || !shown_) return Think();
            return Out(marker, delta);
        }
        for (const CallForm& form : rules_.calls) {
            if (marker != form.begin) continue;
            held_.insert(0, marker.substr(marker.size() - form.kept));
            BeginCall(form, std::string(marker.substr(0, marker.size() - form.kept)));
            in_reasoning_ = false;  // a model may forget to end its reasoning
            return;
        }
        if (marker == rules_.think_end) in_reasoning_ = false;
        content_.Cut();
    }

    void BeginCall(const CallForm& form, std::string shown) {
        call_ = {.form = &form, .shown = std::move(shown), .scan = ValueScan(form.style)};
        call_.searched = form.kept;
        if (!form.end.empty()) {
            call_.ends = {form.end};
            // A begin marker that contains the end marker would hide it until it is complete.
            if (form.begin.find(form.end) == form.begin.npos) call_.ends.push_back(form.begin);
            return;
        }
        for (const CallForm& other : rules_.calls) call_.ends.push_back(other.begin);
        call_.ends.insert(call_.ends.end(), rules_.dropped.begin(), rules_.dropped.end());
    }

    // After a call whose format repeats: checks whether another call follows. Returns false while
    // this is undecided.
    bool StepBehindCall() {
        const size_t at = held_.find_first_not_of(" \t\r\n,;");
        if (at == held_.npos && !over_) return false;
        const CallForm* form = std::exchange(again_, nullptr);
        if (at == held_.npos || (held_[at] != '{' && held_[at] != '[')) return true;
        std::string shown = held_.substr(0, at);
        held_.erase(0, at);
        BeginCall(*form, std::move(shown));
        return true;
    }

    // Advances the scan to offset `end` of held_.
    void Scan(size_t end) {
        if (end <= call_.scanned) return;
        const std::string_view held = held_;
        if (call_.scanned == 0) {
            const std::string_view text = TrimBlanks(held.substr(0, end));
            if (text.empty()) return;
            const bool json = text[0] == '{' || text[0] == '[';
            call_.tagged = call_.form->tags && !json;
        }
        call_.scan.Feed(held.substr(call_.scanned, end - call_.scanned));
        call_.scanned = end;
    }

    // Whether an end marker at `at` is inside a value.
    bool Inside(size_t at) {
        if (literal_) return false;
        const std::string_view body = std::string_view(held_).substr(0, at);
        if (call_.tagged) return call_.tags.Inside(body, call_.form->end);
        if (call_.form->last.empty()) return call_.scan.inside();
        const std::string_view text = TrimBlanks(body);
        return text.empty() || call_.form->last.find(text.back()) == text.npos;
    }

    bool StepInCall(AnswerDelta& delta) {
        for (;;) {
            const FoundMarker found = FindMarker(held_, call_.ends, call_.searched);
            const bool none = found.at == std::string::npos;
            const size_t known =
                none ? held_.size() - (over_ ? 0 : BegunAtEnd(held_, call_.ends)) : found.at;
            Scan(known);
            if (call_.form->end.empty() && call_.scan.done()) {
                return EndHere(call_.scan.end(), delta);
            }
            if (none) {
                call_.searched = std::max(call_.searched, known);
                if (call_.form->streams && options_.parts) {
                    TakePart(std::string_view(held_).substr(0, known), delta);
                }
                return false;
            }
            const std::string_view marker = call_.ends[found.marker];
            // The start of another call ends only a call whose JSON is complete.
            const bool early =
                !call_.form->end.empty() && marker == call_.form->begin && !call_.scan.done();
            if (!early && !Inside(found.at)) return EndAt(found.at, marker, delta);
            call_.skipped = call_.skipped || !early;
            call_.searched = found.at + 1;
        }
    }

    // Ends the call with its JSON.
    bool EndHere(size_t end, AnswerDelta& delta) {
        const std::string body = held_.substr(0, end);
        held_.erase(0, end);
        again_ = call_.form->repeats ? call_.form : nullptr;
        EndCall(body, "", true, delta);
        return true;
    }

    bool EndAt(size_t at, std::string_view marker, AnswerDelta& delta) {
        const bool own = !call_.form->end.empty() && marker == call_.form->end;
        const std::string body = held_.substr(0, at);
        held_.erase(0, own ? at + marker.size() : at);
        EndCall(body, own ? marker : "", true, delta);
        return true;
    }

    // Returns whether the call is streamed in parts.
    bool TakePart(std::string_view body, AnswerDelta& delta) {
        const bool begins = !call_.stream.begun();
        std::string arguments;
        call_.stream.Take(body, arguments);
        if (!call_.stream.begun()) return false;
        if (begins || !arguments.empty()) {
            delta.call_parts.push_back(
                {begins ? call_.stream.name() : "", std::move(arguments), begins, false});
        }
        return true;
    }

    // Returns false if the call has no parts.
    bool EndParts(std::string_view body, AnswerDelta& delta) {
        if (!call_.form->streams || !options_.parts || !TakePart(body, delta)) return false;
        if (call_.stream.done()) delta.call_parts.push_back({"", "", false, true});
        return true;
    }

    // end: the end marker, or what has arrived of it. ended: the call is not cut off.
    void EndCall(std::string_view body, std::string_view end, bool ended, AnswerDelta& delta) {
        const bool in_parts = EndParts(body, delta);
        Calls calls = in_parts ? Calls() : ReadCalls(body, ended);
        const std::string shown = std::exchange(call_, OpenCall()).shown;
        if (in_parts || calls) {
            for (ToolCall& one : calls.value_or(std::vector<ToolCall>())) {
                delta.tool_calls.push_back(std::move(one));
            }
            content_.Cut();
            shown_ = false;
            return;
        }
        again_ = nullptr;
        ShowNoCall(shown + std::string(body) + std::string(end), delta);
    }

    // The calls in the text of the current one. ended: it is not cut off.
    Calls ReadCalls(std::string_view body, bool ended) {
        // An incomplete value must not count as a call, nor a call whose arguments have not begun.
        const bool json = call_.form->style == ValueScan::Style::kJson;
        const bool whole =
            call_.tagged ? call_.tags.Whole(body, call_.form->end) : !json || call_.scan.done();
        Calls calls;
        if (ended || whole) calls = call_.form->read(body, options_.types());
        if (!calls && !ended && call_.form->streams) calls = ReadBegun(body);
        return calls;
    }

    // Shows text that began like a call, with its markers.
    void ShowNoCall(const std::string& text, AnswerDelta& delta) {
        content_.End(delta.content);
        delta.content += text;
        shown_ = true;
        content_ = Stretch();
    }

    // Parses a call that is cut off after its arguments.
    static Calls ReadBegun(std::string_view body) {
        CallStream stream;
        std::string arguments;
        stream.Take(body, arguments);
        OrderedJson json = ReadJson(arguments);
        if (!stream.done() || json.is_discarded()) return {};
        return std::vector<ToolCall>{{stream.name(), std::move(json)}};
    }

    void NoCall(AnswerDelta& delta) {
        if (call_.stream.begun()) return EndCall(std::exchange(held_, {}), "", false, delta);
        const std::string shown = std::exchange(call_, OpenCall()).shown;
        ShowNoCall(shown + std::exchange(held_, {}), delta);
    }

    AnswerRules rules_;
    const GrammarOptions options_;
    std::vector<std::string_view> outside_;
    std::string held_;
    OpenCall call_;
    const CallForm* again_ = nullptr;  // format of the previous call, if it repeats
    bool in_reasoning_ = false;
    bool over_ = false;     // the answer has ended
    bool literal_ = false;  // end markers count even inside strings
    bool shown_ = false;    // content was passed on
    Stretch content_, reasoning_;
};

}  // namespace

std::unique_ptr<AnswerParser::Grammar> MakeTagGrammar(ToolCallFormat family,
                                                      GrammarOptions options) {
    return std::make_unique<TagGrammar>(RulesOf(family), std::move(options));
}

}  // namespace weft::chat
