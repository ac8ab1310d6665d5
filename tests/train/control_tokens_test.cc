// Control tokens in a record's text: they are read as tokens if the chat template writes the same
// ones, else as plain text; `weft train data inspect` shows which.
#include "train/data/control_tokens.h"

#include "train/data/inspect.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

constexpr const char* kRendered =
    "<|im_start|>user\\nhi<|im_end|>\\n<|im_start|>assistant\\nhello<|im_end|>\\n";
constexpr int32_t kTextEnd = 256, kTurnEnd = 258;

std::vector<int32_t> ControlsIn(const Sample& sample) {
    std::vector<int32_t> controls;
    for (const int32_t id : sample.tokens) {
        if (id >= kTextEnd) controls.push_back(id);
    }
    return controls;
}

Sample ReadAs(ControlMode mode, const std::string& json, const chat::Chat* chat = &ChatMl()) {
    const auto encoder = Must(Encoder::Make(Bytes(), chat, 1, 0, {.control = mode}));
    return Must(encoder.Encode(Must(ParseRecord(json))));
}

std::string TextRecordOf(const std::string& text) {
    return R"({"text": ")" + text + R"("})";
}

// A rendered text becomes the same sample as its conversation, except for the mask.
TEST(ControlTokens, ARenderedTextIsItsConversation) {
    const Sample wanted = Must(ByteEncoder().Encode(Must(ParseRecord(R"({"messages": [
        {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]})"))));
    for (const ControlMode mode : {ControlMode::kAuto, ControlMode::kParse}) {
        const Sample text = ReadAs(mode, TextRecordOf(kRendered));
        EXPECT_EQ(text.tokens, wanted.tokens);
        EXPECT_EQ(Marked(text),
                  "[" + Marked({text.tokens, std::vector<uint8_t>(text.tokens.size())}) + "]");
        const Sample pair =
            ReadAs(mode, R"({"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>)"
                         R"(assistant\n", "completion": "hello<|im_end|>\n"})");
        EXPECT_EQ(pair.tokens, wanted.tokens);
        EXPECT_EQ(Marked(pair),
                  "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
                  "[hello<|im_end|>\n]");
    }
    const Sample letters = ReadAs(ControlMode::kLetters, TextRecordOf(kRendered));
    EXPECT_EQ(ControlsIn(letters), std::vector<int32_t>{kTextEnd});
}

// unsloth appends the end token to any text. An end token within a text does not count.
TEST(ControlTokens, AllMustBeTheTemplates) {
    const auto controls = [](const std::string& text, const chat::Chat* chat = &ChatMl()) {
        return ControlsIn(ReadAs(ControlMode::kAuto, TextRecordOf(text), chat));
    };
    using Ids = std::vector<int32_t>;
    EXPECT_EQ(controls("plain"), Ids{kTextEnd});
    EXPECT_EQ(controls("an answer<|endoftext|>"), Ids{kTextEnd});
    EXPECT_EQ(controls("an answer<|endoftext|>", nullptr), Ids{kTextEnd});
    EXPECT_EQ(controls("GPT-2 ends with <|endoftext|>, as said"), Ids{kTextEnd});
    EXPECT_EQ(controls("<|im_start|>user\\nhi<|endoftext|> more<|im_end|>"), Ids{kTextEnd});
    EXPECT_EQ(controls(kRendered, nullptr), Ids{kTextEnd}) << "no template writes them";
    EXPECT_EQ(controls("<|im_start|>user\\nhi<|im_end|>").back(), kTurnEnd);
    EXPECT_EQ(controls("<|im_start|>user\\nhi<|im_end|> and"), (Ids{257, kTurnEnd, kTextEnd}));
    // parse reads any control token.
    const Sample parsed = ReadAs(ControlMode::kParse, TextRecordOf("a<|endoftext|>b"), nullptr);
    EXPECT_EQ(ControlsIn(parsed), (Ids{kTextEnd, kTextEnd}));
    // A begin token in the text is not added twice.
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    data.bos = 257;
    data.add_bos = true;
    const auto tokenizer = Must(tokenizer::Tokenizer::Make(std::move(data)));
    const auto encoder = Must(Encoder::Make(*tokenizer, nullptr, 1));
    for (const char* text : {"ab", "<|im_start|>ab", "<|im_start|>ab<|endoftext|>"}) {
        const Sample sample = Must(encoder.Encode(Must(ParseRecord(TextRecordOf(text)))));
        EXPECT_EQ(sample.tokens, (Ids{257, 'a', 'b', kTextEnd})) << text;
    }
}

TEST(ControlTokens, AreReportedOnceAndShownApart) {
    const test::TempDir folder;
    const std::string path =
        WriteText(folder, "d.jsonl",
                  TextRecordOf(kRendered) + "\n" + TextRecordOf(kRendered) + "\n" +
                      R"({"prompt": "q<|endoftext|>r", "completion": "<|im_end|>x"})" + "\n");
    const auto data = Must(DataSet::Open({.specs = {path}}, ByteEncoder()));
    EXPECT_EQ(data->TakeNote(), "");
    for (uint64_t i = 0; i < 2; ++i) Must(data->Read(Part::kTrain, i));
    const std::string note = data->TakeNote();
    EXPECT_NE(note.find("d.jsonl"), std::string::npos) << note;
    EXPECT_NE(note.find("<|im_start|>, and they are read as control tokens"), std::string::npos)
        << note;
    EXPECT_NE(note.find("--control-tokens letters"), std::string::npos) << note;
    EXPECT_EQ(data->TakeNote(), "");
    Must(data->Read(Part::kTrain, 2));
    const std::string other = data->TakeNote();
    EXPECT_NE(other.find("such as <|endoftext|>"), std::string::npos) << other;
    EXPECT_NE(other.find("--control-tokens parse"), std::string::npos) << other;

    const DataReport report =
        Must(InspectData(*data, &Bytes(), {.loader = {.sequence = 96}, .show = 3}));
    const std::string text = ReportText(report);
    EXPECT_NE(text.find("user\\nhi\u27E6<|im_end|>\u27E7\\n\u27E6<|im_start|>\u27E7assistant"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("q<|endoftext|>r"), std::string::npos) << text;
    EXPECT_EQ(text.find("<|endoftext|>\u27E7r"), std::string::npos) << text;
    const auto told = ReportJson(report);
    EXPECT_EQ(told["samples"][0]["runs"].back()["control_tokens"], 3);
}

// Notes that the encoder keeps after a record.
std::string NotesOf(const std::string& json, ControlMode mode = ControlMode::kAuto,
                    const chat::Chat* chat = &ChatMl()) {
    const auto encoder = Must(Encoder::Make(Bytes(), chat, 1, 0, {.control = mode}));
    for (int i = 0; i < 2; ++i) Must(encoder.Encode(Must(ParseRecord(json))));
    std::string notes;
    for (std::string note; !(note = encoder.TakeNote()).empty();) notes += note + "\n";
    return notes;
}

// Texts rendered for another family's template are reported once, with the treatment.
TEST(ControlTokens, OfOtherModelsAreReported) {
    for (const std::string marker :
         {"<|start_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<start_of_turn>",
          "<\xEF\xBD\x9C"
          "User"
          "\xEF\xBD\x9C>",
          "<|user|>", "<|start-of-turn|>"}) {
        const std::string words = "a " + marker + " b" + marker;
        for (const std::string& record :
             {TextRecordOf(words), R"({"prompt": ")" + words + R"(", "completion": "c"})",
              R"({"prompt": "c", "completion": ")" + words + R"("})",
              R"({"instruction": ")" + words + R"(", "output": "c"})",
              R"({"question": "c", "answer": ")" + words + R"("})",
              R"({"messages": [{"role": "user", "content": ")" + words +
                  R"("}, {"role": "assistant", "content": "c"}]})"}) {
            for (const ControlMode mode : {ControlMode::kAuto, ControlMode::kParse}) {
                const std::string notes = NotesOf(record, mode);
                const size_t at = notes.find("records hold " + marker);
                EXPECT_NE(at, std::string::npos) << record << notes;
                EXPECT_EQ(notes.find("records hold", at + 1), std::string::npos) << notes;
                EXPECT_NE(notes.find("give the conversations as 'messages'"), std::string::npos);
            }
            EXPECT_EQ(NotesOf(record, ControlMode::kLetters), "");
        }
    }
    for (const std::string words : {"a < b > c", "x <| y |> z", "<b>bold</b>", "<||>", "<|a b|>",
                                    "[inst]", "f <|> g", "List<Map<int>>"}) {
        EXPECT_EQ(NotesOf(TextRecordOf(words)), "") << words;
    }
    // The model's own template may write such a marker as plain text.
    const auto chat = Must(chat::Chat::Make(
        "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}", Bytes()));
    EXPECT_EQ(NotesOf(TextRecordOf("[INST] a [/INST] b"), ControlMode::kAuto, &chat), "");
}

// The model's own control tokens at places where they are plain text with any value of the flag.
TEST(ControlTokens, InTextAreReported) {
    const std::string words = "<|im_start|>user\\nhi<|im_end|>";
    for (const std::string& record :
         {R"({"instruction": ")" + words + R"(", "output": "c"})",
          R"({"instruction": "c", "input": ")" + words + R"(", "output": "c"})",
          R"({"question": ")" + words + R"(", "answer": "c"})",
          R"({"prompt": ")" + words +
              R"(", "completion": [{"role": "assistant", "content": "c"}]})",
          R"({"messages": [{"role": "user", "content": [{"type": "text", "text": ")" + words +
              R"("}]}, {"role": "assistant", "content": "c"}]})"}) {
        for (const ControlMode mode : {ControlMode::kAuto, ControlMode::kParse}) {
            const std::string notes = NotesOf(record, mode);
            EXPECT_NE(notes.find("tokens such as <|im_start|>, and they are read as letters"),
                      std::string::npos)
                << record << notes;
            EXPECT_NE(notes.find("--control-tokens parse"), std::string::npos) << notes;
        }
        EXPECT_EQ(NotesOf(record, ControlMode::kLetters), "");
        EXPECT_EQ(NotesOf(R"({"instruction": "c", "output": "c"})"), "");
    }
}

// A template may take a thought out of the content and write its control tokens itself.
TEST(ControlTokens, ThatTheTemplateWritesAreNotReported) {
    tokenizer::TokenizerData data = tokenizer::TinyBytePair();
    data.eot = kTurnEnd;
    for (const char* name : {"<think>", "</think>"}) {
        data.tokens.push_back(name);
        data.types.push_back(3);
    }
    const auto tokenizer = Must(tokenizer::Tokenizer::Make(std::move(data)));
    const std::string begin = "{% for m in messages %}<|im_start|>{{ m.role }}\n",
                      end = "<|im_end|>\n";
    const std::string splits =
        "{% if '</think>' in m.content %}<think>{{ "
        "m.content.split('</think>')[0].split('<think>')[1]"
        " }}</think>{{ m.content.split('</think>')[1] }}{% else %}{{ m.content }}{% endif %}";
    for (const bool written : {true, false}) {
        const chat::Chat chat = Must(chat::Chat::Make(
            begin + (written ? splits : "{{ m.content }}") + end +
                "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
            *tokenizer));
        const auto encoder = Must(Encoder::Make(*tokenizer, &chat, 1));
        const Sample sample = Must(encoder.Encode(Must(ParseRecord(
            R"({"messages": [{"role": "user", "content": "q"},
                {"role": "assistant", "content": "<think>t</think>a"}]})"))));
        EXPECT_EQ(std::ranges::count(sample.tokens, kTurnEnd + 1), written ? 1 : 0);
        EXPECT_EQ(encoder.TakeNote().find("such as <think>, and they are read as letters") !=
                      std::string::npos,
                  !written);
    }
}

TEST(ControlTokens, Modes) {
    EXPECT_EQ(Must(ControlModeOf("auto")), ControlMode::kAuto);
    EXPECT_EQ(Must(ControlModeOf("parse")), ControlMode::kParse);
    EXPECT_EQ(Must(ControlModeOf("letters")), ControlMode::kLetters);
    EXPECT_EQ(ControlModeOf("yes").error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace weft::train
