#include "chat/answer.h"

#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/call_stream.h"

namespace weft::chat {

// The machine of one family: text in, deltas out.
class AnswerParser::Grammar {
  public:
    Grammar() = default;
    virtual ~Grammar() = default;
    Grammar(const Grammar&) = delete;
    Grammar& operator=(const Grammar&) = delete;

    virtual void Push(std::string_view text, AnswerDelta& delta) = 0;
    virtual void Finish(AnswerDelta& delta) = 0;
};

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// DeepSeek's markers have wide bars (U+FF5C) and blanks of SentencePiece (U+2581).
#define WEFT_BAR "\xEF\xBD\x9C"
#define WEFT_GAP "\xE2\x96\x81"

struct Found {
    size_t at = std::string_view::npos;
    size_t marker = 0;  // which
};

// The first of some markers in a text; of two at one place the longer.
Found FindFirst(std::string_view text, const std::vector<std::string_view>& markers) {
    Found first;
    for (size_t i = 0; i < markers.size(); ++i) {
        const size_t at = text.find(markers[i]);
        if (at == text.npos) continue;
        const bool better = first.at == text.npos || at < first.at ||
                            (at == first.at && markers[i].size() > markers[first.marker].size());
        if (better) first = {at, i};
    }
    return first;
}

// Bytes at the end of `text` that begin one of the markers.
size_t BegunAtEnd(std::string_view text, const std::vector<std::string_view>& markers) {
    size_t most = 0;
    for (const std::string_view marker : markers) {
        for (size_t size = std::min(marker.size() - 1, text.size()); size > most; --size) {
            if (text.ends_with(marker.substr(0, size))) most = size;
        }
    }
    return most;
}

// Text on its way out: blanks at its begin may go, those at its end wait for what follows.
class Stretch {
  public:
    void Add(std::string_view text, std::string& out) {
        if (at_begin_) {
            const size_t begin = text.find_first_not_of(kBlanks);
            if (begin == text.npos) return;
            text.remove_prefix(begin);
            at_begin_ = false;
        }
        const size_t last = text.find_last_not_of(kBlanks);
        if (last == text.npos) {
            blanks_ += text;
            return;
        }
        out += std::exchange(blanks_, {});
        out += text.substr(0, last + 1);
        blanks_ = text.substr(last + 1);
    }
    // A marker: blanks on both its sides go.
    void Cut() {
        blanks_.clear();
        at_begin_ = true;
    }
    void End(std::string& out) { out += std::exchange(blanks_, {}); }

  private:
    bool at_begin_ = false;
    std::string blanks_;
};

// ---- families with markers around reasoning and calls

struct Rules {
    std::string_view think_begin, think_end;
    std::string_view call_begin, call_end;  // no end: up to the next begin, or the answer's end
    std::vector<std::string_view> dropped;  // markers that say nothing more
    Calls (*read)(std::string_view) = nullptr;
};

Rules RulesOf(AnswerFamily family) {
    switch (family) {
        case AnswerFamily::kQwen:
            return {"<think>",
                    "</think>",
                    "<tool_call>",
                    "</tool_call>",
                    {"<|im_end|>", "<|endoftext|>"},
                    ReadQwenCall};
        case AnswerFamily::kDeepSeek:
            return {"<think>",
                    "</think>",
                    "<" WEFT_BAR "tool" WEFT_GAP "call" WEFT_GAP "begin" WEFT_BAR ">",
                    "<" WEFT_BAR "tool" WEFT_GAP "call" WEFT_GAP "end" WEFT_BAR ">",
                    {"<" WEFT_BAR "tool" WEFT_GAP "calls" WEFT_GAP "begin" WEFT_BAR ">",
                     "<" WEFT_BAR "tool" WEFT_GAP "calls" WEFT_GAP "end" WEFT_BAR ">",
                     "<" WEFT_BAR "end" WEFT_GAP "of" WEFT_GAP "sentence" WEFT_BAR ">"},
                    ReadDeepSeekCall};
        case AnswerFamily::kMistral:
            return {"[THINK]", "[/THINK]", "[TOOL_CALLS]", "", {"</s>"}, ReadMistralCalls};
        case AnswerFamily::kPlain:
        case AnswerFamily::kLlama3:
        case AnswerFamily::kHarmony: break;  // have grammars of their own
    }
    return {};
}

class TagGrammar : public AnswerParser::Grammar {
  public:
    TagGrammar(Rules rules, bool in_reasoning, bool parts)
        : rules_(std::move(rules)), parts_(parts) {
        for (const std::string_view each :
             {rules_.think_begin, rules_.think_end, rules_.call_begin}) {
            outside_.push_back(each);
        }
        outside_.insert(outside_.end(), rules_.dropped.begin(), rules_.dropped.end());
        if (rules_.call_end.empty()) {
            call_ends_ = {rules_.call_begin};
            call_ends_.insert(call_ends_.end(), rules_.dropped.begin(), rules_.dropped.end());
        } else {
            call_ends_ = {rules_.call_end};
        }
        if (in_reasoning) Think();
    }

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (in_call_ && parts_) {
            const size_t known = held_.size() - BegunAtEnd(held_, call_ends_);
            TakePart(std::string_view(held_).substr(0, known), delta);
        }
        if (in_call_ && held_.size() > AnswerParser::kMostHeldBytes) NoCall(delta);
    }

    void Finish(AnswerDelta& delta) override {
        if (in_call_) {
            EndCall(held_, false, delta);
        } else {
            Out(held_, delta);
        }
        held_.clear();
        content_.End(delta.content);
    }

  private:
    void Think() {
        in_reasoning_ = true;
        content_.Cut();
        reasoning_.Cut();
    }

    void Out(std::string_view text, AnswerDelta& delta) {
        if (in_reasoning_) return reasoning_.Add(text, delta.reasoning);
        content_.Add(text, delta.content);
    }

    // Takes one marker, and the text before it. False: there is none (yet).
    bool Step(AnswerDelta& delta) {
        const auto& markers = in_call_ ? call_ends_ : outside_;
        const Found found = FindFirst(held_, markers);
        if (found.at == std::string::npos) {
            if (in_call_) return false;
            const size_t known = held_.size() - BegunAtEnd(held_, markers);
            Out(std::string_view(held_).substr(0, known), delta);
            held_.erase(0, known);
            return false;
        }
        const std::string before = held_.substr(0, found.at);
        const std::string_view marker = markers[found.marker];
        held_.erase(0, found.at + marker.size());
        if (in_call_) {
            EndCall(before, true, delta);
            in_call_ = rules_.call_end.empty() && marker == rules_.call_begin;
            return true;
        }
        Out(before, delta);
        Marker(marker);
        return true;
    }

    void Marker(std::string_view marker) {
        if (marker == rules_.think_begin) return Think();
        if (marker == rules_.call_begin) {
            in_call_ = true;
            in_reasoning_ = false;  // a model may forget to end it
        }
        if (marker == rules_.think_end) in_reasoning_ = false;
        content_.Cut();
    }

    // True: the call is one that comes in parts.
    bool TakePart(std::string_view body, AnswerDelta& delta) {
        const bool begins = !call_.begun();
        std::string arguments;
        call_.Take(body, arguments);
        if (!call_.begun()) return false;
        if (begins || !arguments.empty()) {
            delta.call_parts.push_back(
                {begins ? call_.name() : "", std::move(arguments), begins, false});
        }
        return true;
    }

    // False: it has no parts.
    bool EndParts(std::string_view body, AnswerDelta& delta) {
        if (!parts_ || !TakePart(body, delta)) return false;
        if (call_.done()) delta.call_parts.push_back({"", "", false, true});
        return true;
    }

    void EndCall(std::string_view body, bool ended, AnswerDelta& delta) {
        in_call_ = false;
        const bool in_parts = EndParts(body, delta);
        call_ = CallStream();
        if (in_parts) return content_.Cut();
        Calls calls = rules_.read(body);
        if (calls) {
            for (ToolCall& call : *calls) delta.tool_calls.push_back(std::move(call));
            return content_.Cut();
        }
        // Words that are no call: shown with their markers.
        delta.content += rules_.call_begin;
        delta.content += body;
        if (ended) delta.content += rules_.call_end;
        content_ = Stretch();
    }

    void NoCall(AnswerDelta& delta) {
        if (call_.begun()) return EndCall(std::exchange(held_, {}), false, delta);
        in_call_ = false;
        call_ = CallStream();
        delta.content += rules_.call_begin;
        delta.content += std::exchange(held_, {});
        content_ = Stretch();
    }

    const Rules rules_;
    const bool parts_;
    CallStream call_;  // the one that is being written
    std::vector<std::string_view> outside_, call_ends_;
    std::string held_;
    bool in_reasoning_ = false, in_call_ = false;
    Stretch content_, reasoning_;
};

class PlainGrammar : public AnswerParser::Grammar {
  public:
    void Push(std::string_view text, AnswerDelta& delta) override { delta.content += text; }
    void Finish(AnswerDelta&) override {}
};

// ---- Llama 3: the whole answer is a call, or none of it is

class LlamaGrammar : public AnswerParser::Grammar {
  public:
    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        if (!decided_) Decide();
        if (calls_ && held_.size() > AnswerParser::kMostHeldBytes) calls_ = false;
        if (!decided_ || calls_) return;
        const size_t known = held_.size() - BegunAtEnd(held_, Ends());
        Show(std::string_view(held_).substr(0, known), delta);
        held_.erase(0, known);
    }

    void Finish(AnswerDelta& delta) override {
        std::string_view body = TrimBlanks(held_);
        for (const std::string_view end : Ends()) {
            if (body.ends_with(end)) body = TrimBlanks(body.substr(0, body.size() - end.size()));
        }
        if (body.starts_with(kTag)) body.remove_prefix(kTag.size());
        Calls calls = calls_ ? ReadLlamaCalls(body) : std::nullopt;
        if (calls) {
            delta.tool_calls = std::move(*calls);
        } else {
            Show(held_, delta);
        }
        held_.clear();
    }

  private:
    static constexpr std::string_view kTag = "<|python_tag|>";

    static const std::vector<std::string_view>& Ends() {
        static const std::vector<std::string_view> ends = {"<|eot_id|>", "<|eom_id|>"};
        return ends;
    }

    // By the first characters that are not blank.
    void Decide() {
        const std::string_view text = TrimBlanks(held_);
        if (text.empty() || (text.size() < kTag.size() && kTag.starts_with(text))) return;
        decided_ = true;
        calls_ = text.starts_with('{') || text.starts_with(kTag);
    }

    // In one pass: what is left around a marker makes no new one, however the text comes.
    static void Show(std::string_view text, AnswerDelta& delta) {
        for (Found found; (found = FindFirst(text, Ends())).at != text.npos;) {
            delta.content += text.substr(0, found.at);
            text.remove_prefix(found.at + Ends()[found.marker].size());
        }
        delta.content += text;
    }

    std::string held_;
    bool decided_ = false, calls_ = false;
};

// ---- gpt-oss: messages with a head that says what they are

class HarmonyGrammar : public AnswerParser::Grammar {
  public:
    explicit HarmonyGrammar(bool parts) : parts_(parts) {}

    void Push(std::string_view text, AnswerDelta& delta) override {
        held_ += text;
        while (Step(delta)) {
        }
        if (held_.size() > AnswerParser::kMostHeldBytes) {
            delta.content += std::exchange(held_, {});
            kind_ = Kind::kFinal;
            in_head_ = false;
        }
    }

    void Finish(AnswerDelta& delta) override {
        if (in_head_) {
            // Words without any head are the answer; a head without a body says nothing.
            if (held_.find("<|") == std::string::npos) delta.content += held_;
        } else {
            Out(held_, delta);
            EndMessage(false, delta);
        }
        held_.clear();
    }

  private:
    enum class Kind { kAnalysis, kFinal, kCall };

    static const std::vector<std::string_view>& Ends() {
        static const std::vector<std::string_view> ends = {"<|end|>", "<|call|>", "<|return|>",
                                                           "<|start|>"};
        return ends;
    }

    bool Step(AnswerDelta& delta) {
        if (in_head_) {
            constexpr std::string_view kMessage = "<|message|>";
            const size_t at = held_.find(kMessage);
            if (at == std::string::npos) return false;
            ReadHead(std::string_view(held_).substr(0, at));
            held_.erase(0, at + kMessage.size());
            in_head_ = false;
            return true;
        }
        const Found found = FindFirst(held_, Ends());
        const bool none = found.at == std::string::npos;
        const size_t known = none ? held_.size() - BegunAtEnd(held_, Ends()) : found.at;
        Out(std::string_view(held_).substr(0, known), delta);
        held_.erase(0, none ? known : known + Ends()[found.marker].size());
        if (none) return false;
        EndMessage(true, delta);
        in_head_ = true;
        return true;
    }

    // "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json"
    void ReadHead(std::string_view head) {
        const auto word_after = [&](std::string_view mark) {
            const size_t at = head.find(mark);
            if (at == head.npos) return std::string_view();
            const std::string_view rest = head.substr(at + mark.size());
            return rest.substr(0, rest.find_first_of(" \t\r\n<"));
        };
        const std::string_view to = word_after("to=");
        const std::string_view channel = word_after("<|channel|>");
        constexpr std::string_view kFunctions = "functions.";
        if (!to.empty()) {
            kind_ = Kind::kCall;
            name_ = to.starts_with(kFunctions) ? to.substr(kFunctions.size()) : to;
            head_ = head;
            begins_ = true;
        } else {
            kind_ = channel == "analysis" ? Kind::kAnalysis : Kind::kFinal;
        }
    }

    void Out(std::string_view text, AnswerDelta& delta) {
        switch (kind_) {
            case Kind::kAnalysis: delta.reasoning += text; return;
            case Kind::kFinal: delta.content += text; return;
            case Kind::kCall: break;
        }
        if (parts_) return Part(text, delta);
        if (body_.size() + text.size() <= AnswerParser::kMostHeldBytes) {
            body_ += text;
            return;
        }
        delta.content += head_ + "<|message|>" + std::exchange(body_, {});
        delta.content += text;
        kind_ = Kind::kFinal;
    }

    void Part(std::string_view text, AnswerDelta& delta) {
        if (text.empty() && !begins_) return;
        if (body_.size() + text.size() <= AnswerParser::kMostHeldBytes) body_ += text;
        delta.call_parts.push_back({begins_ ? name_ : "", std::string(text), begins_, false});
        begins_ = false;
    }

    void EndMessage(bool ended, AnswerDelta& delta) {
        if (kind_ != Kind::kCall) return;
        if (parts_) {
            Part("", delta);
            const std::string body = std::exchange(body_, {});
            const bool whole = ended || !ReadJson(body).is_discarded();
            if (whole) delta.call_parts.push_back({"", "", false, true});
            kind_ = Kind::kFinal;
            return;
        }
        const std::string body = std::exchange(body_, {});
        OrderedJson arguments = ReadJson(body);
        if (arguments.is_discarded()) {
            delta.content += head_ + "<|message|>" + body;
        } else {
            delta.tool_calls.push_back({name_, std::move(arguments)});
        }
        kind_ = Kind::kFinal;
    }

    const bool parts_;
    bool begins_ = false;  // nothing is said of the call yet
    std::string held_, head_, name_, body_;
    bool in_head_ = true;
    Kind kind_ = Kind::kFinal;
};

std::unique_ptr<AnswerParser::Grammar> GrammarOf(AnswerFamily family, bool in_reasoning,
                                                 bool parts) {
    switch (family) {
        case AnswerFamily::kPlain: return std::make_unique<PlainGrammar>();
        case AnswerFamily::kLlama3: return std::make_unique<LlamaGrammar>();
        case AnswerFamily::kHarmony: return std::make_unique<HarmonyGrammar>(parts);
        case AnswerFamily::kQwen:
        case AnswerFamily::kDeepSeek:
        case AnswerFamily::kMistral: break;
    }
    return std::make_unique<TagGrammar>(RulesOf(family), in_reasoning,
                                        parts && family == AnswerFamily::kQwen);
}

}  // namespace

AnswerFamily FamilyOf(std::string_view chat_template) {
    static constexpr std::pair<std::string_view, AnswerFamily> kMarkers[] = {
        {"<|channel|>", AnswerFamily::kHarmony},
        {"<" WEFT_BAR "Assistant" WEFT_BAR ">", AnswerFamily::kDeepSeek},
        {"<tool_call>", AnswerFamily::kQwen},
        {"[TOOL_CALLS]", AnswerFamily::kMistral},
        {"[THINK]", AnswerFamily::kMistral},
        {"<|python_tag|>", AnswerFamily::kLlama3},
        {"<|start_header_id|>", AnswerFamily::kLlama3},
        {"<think>", AnswerFamily::kQwen},
    };
    for (const auto& [marker, family] : kMarkers) {
        if (chat_template.find(marker) != chat_template.npos) return family;
    }
    return AnswerFamily::kPlain;
}

std::string_view FamilyName(AnswerFamily family) {
    switch (family) {
        case AnswerFamily::kPlain: return "plain";
        case AnswerFamily::kQwen: return "qwen";
        case AnswerFamily::kLlama3: return "llama3";
        case AnswerFamily::kDeepSeek: return "deepseek";
        case AnswerFamily::kMistral: return "mistral";
        case AnswerFamily::kHarmony: return "harmony";
    }
    return "";
}

AnswerParser::AnswerParser(AnswerFamily family, bool begins_in_reasoning, bool parts)
    : grammar_(GrammarOf(family, begins_in_reasoning, parts)) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

AnswerDelta AnswerParser::Push(std::string_view text) {
    AnswerDelta delta;
    grammar_->Push(text, delta);
    return delta;
}

AnswerDelta AnswerParser::Finish() {
    AnswerDelta delta;
    grammar_->Finish(delta);
    return delta;
}

AnswerDelta ParseAnswer(AnswerFamily family, std::string_view text, bool partial) {
    AnswerParser parser(family);
    AnswerDelta all = parser.Push(text);
    if (partial) return all;
    AnswerDelta rest = parser.Finish();
    all.content += rest.content;
    all.reasoning += rest.reasoning;
    for (ToolCall& call : rest.tool_calls) all.tool_calls.push_back(std::move(call));
    return all;
}

bool EndsInReasoning(std::string_view prompt) {
    prompt = prompt.substr(0, prompt.find_last_not_of(kBlanks) + 1);
    return prompt.ends_with("<think>") || prompt.ends_with("[THINK]");
}

}  // namespace weft::chat
