// A last assistant message that the model continues: the prompt is what the template writes before
// the end of the message, and the parser of the answer is given the text written so far.
#include "chat/continuation.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

#include "base/file.h"
#include "chat/conversation.h"
#include "support/paths.h"
#include "support/tiny_vocabulary.h"

namespace weft::chat {
namespace {

constexpr const char* kTags =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and m.reasoning_content %}<think>\n{{ m.reasoning_content | trim "
    "}}\n</think>\n\n{% endif %}{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";

std::unique_ptr<tokenizer::Tokenizer> Vocabulary() {
    auto made = tokenizer::Tokenizer::Make(tokenizer::TinySpm({"a"}));
    return made.ok() ? std::move(*made) : nullptr;
}

ChatInput Begun(const std::string& words, const std::string& reasoning = "") {
    ChatInput input = OneQuestion("", "What is it?");
    input.messages.push_back({{"role", "assistant"}, {"content", words}});
    if (!reasoning.empty()) input.messages.back()["reasoning_content"] = reasoning;
    input.now_s = 1;
    return input;
}

Result<ContinuedPrompt> Continue(const Chat& chat, ChatInput input,
                                 ContinuedPart part = ContinuedPart::kLast) {
    EXPECT_FALSE(PrepareConversation(FindForms(chat), input));
    return RenderContinued(chat, std::move(input), FamilyOf(chat.source()), part);
}

// The answer that a client receives for the model's text after the prompt.
AnswerDelta Parsed(const Chat& chat, const ContinuedPrompt& prompt, const std::string& answer) {
    AnswerParser parser(FamilyOf(chat.source()), prompt.in_reasoning);
    parser.Push(prompt.begun);
    AnswerDelta all = parser.Push(answer);
    const AnswerDelta rest = parser.Finish();
    all.content += rest.content;
    all.reasoning += rest.reasoning;
    return all;
}

TEST(Continuation, OfEachTemplate) {
    const auto vocabulary = Vocabulary();
    int continued = 0;
    for (const auto& entry : std::filesystem::directory_iterator(support::TestData("/chat"))) {
        // (raw_rules shows the rules of templates, no conversation.)
        if (entry.path().extension() != ".jinja" || entry.path().stem() == "raw_rules") continue;
        SCOPED_TRACE(entry.path().filename().string());
        const auto source = ReadTextStream(entry.path().string(), 1 << 20);
        ASSERT_TRUE(source.ok());
        const auto chat = Chat::Make(*source, *vocabulary);
        ASSERT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
        const auto prompt = Continue(*chat, Begun("It is a"));
        EXPECT_TRUE(prompt.ok()) << (prompt.ok() ? "" : prompt.error().message);
        if (!prompt.ok()) continue;
        EXPECT_TRUE(prompt->text.view().ends_with("It is a")) << prompt->text.bytes();
        EXPECT_FALSE(prompt->in_reasoning);
        const AnswerDelta answer = Parsed(*chat, *prompt, "\n\nred fox.");
        EXPECT_EQ(answer.content, "\n\nred fox.");
        EXPECT_EQ(answer.reasoning, "");
        // White space at the end stays, and markers in the text stay text.
        const auto spaced = Continue(*chat, Begun("It is a \n"));
        ASSERT_TRUE(spaced.ok());
        EXPECT_TRUE(spaced->text.view().ends_with("It is a \n"));
        EXPECT_GE(spaced->text.SourceAt(spaced->text.size() - 1), kMessageWords);
        // As transformers' continue_final_message: the rendered conversation, up to the text.
        ChatInput whole = Begun("It is a fox");
        whole.add_generation_prompt = false;
        EXPECT_FALSE(PrepareConversation(FindForms(*chat), whole));
        const auto text = chat->Render(whole);
        const bool closes = prompt->begun.find(ThinkEnd(FamilyOf(*source))) != std::string::npos;
        if (!text.ok() || closes) continue;
        EXPECT_TRUE(text->view().starts_with(prompt->text.view())) << text->bytes() << "\n---\n"
                                                                   << prompt->text.bytes();
        ++continued;
    }
    EXPECT_GT(continued, 20);
}

// An answer behind the result of a call, whose message has a reasoning of its own.
TEST(Continuation, BehindAResult) {
    const auto vocabulary = Vocabulary();
    int continued = 0;
    for (const auto& entry : std::filesystem::directory_iterator(support::TestData("/chat"))) {
        if (entry.path().extension() != ".jinja" || entry.path().stem() == "raw_rules") continue;
        SCOPED_TRACE(entry.path().filename().string());
        const auto source = ReadTextStream(entry.path().string(), 1 << 20);
        ASSERT_TRUE(source.ok());
        const auto chat = Chat::Make(*source, *vocabulary);
        ASSERT_TRUE(chat.ok()) << (chat.ok() ? "" : chat.error().message);
        ChatInput input = Begun("", "First.");
        input.messages[1]["tool_calls"] = OrderedJson::parse(
            R"([{"type": "function", "id": "call00001",
                 "function": {"name": "look", "arguments": {"city": "Paris"}}}])");
        input.messages.push_back(
            {{"role", "tool"}, {"tool_call_id", "call00001"}, {"content", "sunny"}});
        ChatInput asks = input;
        ASSERT_FALSE(PrepareConversation(FindForms(*chat), asks));
        const auto asked = chat->Render(asks);
        if (!asked.ok()) continue;
        for (const auto& [content, reasoning] :
             {std::pair("It is", ""), std::pair("", "Second"), std::pair("It is", "Second")}) {
            ChatInput begun = input;
            begun.messages.push_back(Begun(content, reasoning).messages[1]);
            const auto prompt = Continue(*chat, begun);
            ASSERT_TRUE(prompt.ok()) << prompt.error().message;
            const std::string_view text = prompt->text.view();
            EXPECT_TRUE(text.ends_with(*content != '\0' ? content : reasoning)) << text;
            for (const char* words : {"Paris", "sunny"}) {
                const bool shown = asked->view().find(words) != std::string_view::npos;
                EXPECT_EQ(text.find(words) != text.npos, shown) << words << ": " << text;
            }
            ++continued;
        }
    }
    EXPECT_GT(continued, 60);
}

TEST(Continuation, AfterReasoning) {
    const auto vocabulary = Vocabulary();
    const auto chat = Chat::Make(kTags, *vocabulary);
    ASSERT_TRUE(chat.ok());
    const std::string head = "<|im_start|>user\nWhat is it?<|im_end|>\n<|im_start|>assistant\n";
    EXPECT_EQ(Continue(*chat, Begun("It is"))->text.bytes(), head + "<think>\n\n</think>\n\nIt is");
    // The reasoning as a member, or in the content.
    for (const ChatInput& input :
         {Begun("It is", "Hm."), Begun("<think>\nHm.\n</think>\n\nIt is")}) {
        const auto prompt = Continue(*chat, input);
        ASSERT_TRUE(prompt.ok());
        EXPECT_EQ(prompt->text.bytes(), head + "<think>\nHm.\n</think>\n\nIt is");
        EXPECT_EQ(Parsed(*chat, *prompt, " a fox").content, " a fox");
    }
    // A reasoning that was cut off continues.
    for (const ChatInput& input : {Begun("", "Hm"), Begun("<think>\nHm")}) {
        const auto prompt = Continue(*chat, input);
        ASSERT_TRUE(prompt.ok());
        EXPECT_EQ(prompt->text.bytes(), head + "<think>\nHm");
        EXPECT_TRUE(prompt->in_reasoning);
        const AnswerDelta answer = Parsed(*chat, *prompt, ", yes.\n</think>\n\nA fox");
        EXPECT_EQ(answer.reasoning, ", yes.");
        EXPECT_EQ(answer.content, "A fox");
    }
    // A reasoning that has ended is not opened again, also an empty one.
    for (const auto& [content, reasoning] :
         {std::pair("<think>\n\n</think>\n\n", "\n"), std::pair("<think>Hm.</think>", "Hm.\n")}) {
        const auto prompt = Continue(*chat, Begun(content));
        ASSERT_TRUE(prompt.ok());
        EXPECT_EQ(prompt->text.bytes(), head + "<think>\n" + reasoning + "</think>\n\n");
        EXPECT_FALSE(prompt->in_reasoning);
        EXPECT_EQ(Parsed(*chat, *prompt, "A fox").content, "A fox");
    }
    const auto asked = Continue(*chat, Begun("", "Hm"), ContinuedPart::kContent);
    ASSERT_TRUE(asked.ok());
    EXPECT_EQ(asked->text.bytes(), head + "<think>\nHm\n</think>\n\n");
    EXPECT_FALSE(asked->in_reasoning);
}

// Ministral 3: reasoning and text are parts of the content.
TEST(Continuation, OfAReasoningThatIsAPart) {
    const auto vocabulary = Vocabulary();
    const auto chat = Chat::Make(
        "{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
        "{% elif m.role == 'assistant' %}{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for b in m.content %}{% if b.type == 'text' %}{{ b.text }}"
        "{% elif b.type == 'thinking' %}[THINK]{{ b.thinking }}[/THINK]{% endif %}{% endfor %}"
        "{% endif %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]{{ c.function.name }}[ARGS]"
        "{{ c.function.arguments | tojson }}{% endfor %}</s>"
        "{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]{% endif %}"
        "{% endfor %}",
        *vocabulary);
    ASSERT_TRUE(chat.ok());
    const std::string head = "[INST]What is it?[/INST]";
    for (const ChatInput& input : {Begun("It is", "Hm."), Begun("[THINK]Hm.[/THINK]It is")}) {
        const auto prompt = Continue(*chat, input);
        ASSERT_TRUE(prompt.ok());
        EXPECT_EQ(prompt->text.bytes(), head + "[THINK]Hm.[/THINK]It is");
        EXPECT_FALSE(prompt->in_reasoning);
        EXPECT_EQ(Parsed(*chat, *prompt, " a fox").content, " a fox");
    }
    EXPECT_EQ(Continue(*chat, Begun("It is"))->text.bytes(), head + "It is");
    const auto thought = Continue(*chat, Begun("", "Hm"));
    ASSERT_TRUE(thought.ok());
    EXPECT_EQ(thought->text.bytes(), head + "[THINK]Hm");
    EXPECT_TRUE(thought->in_reasoning);
    EXPECT_EQ(Parsed(*chat, *thought, ", yes.[/THINK]A fox").reasoning, ", yes.");
}

// A template that shows no reasoning gets the one that has ended as it was written.
TEST(Continuation, AfterAnEmptyReasoningThatTheTemplateOmits) {
    const auto vocabulary = Vocabulary();
    const auto chat = Chat::Make(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if false %}<think></think>{% endif %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        *vocabulary);
    ASSERT_TRUE(chat.ok());
    const auto prompt = Continue(*chat, Begun("<think>\n\n</think>\n\nIt is"));
    ASSERT_TRUE(prompt.ok());
    EXPECT_TRUE(prompt->text.view().ends_with("assistant\n<think>\n\n</think>\n\nIt is"))
        << prompt->text.bytes();
    EXPECT_EQ(Parsed(*chat, *prompt, " a fox").content, " a fox");
}

// The message follows the generation prompt, behind the reasoning that this opens.
TEST(Continuation, OfATemplateThatHidesTheMessage) {
    const auto vocabulary = Vocabulary();
    const auto chat = Chat::Make(
        "{% for m in messages if m.role == 'user' %}<|im_start|>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|><think>\n{% endif %}",
        *vocabulary);
    ASSERT_TRUE(chat.ok());
    const auto prompt = Continue(*chat, Begun("It is continuedhere"));
    ASSERT_TRUE(prompt.ok());
    EXPECT_EQ(prompt->text.bytes(),
              "<|im_start|>What is it?<|im_start|><think>\n\n</think>\n\nIt is continuedhere");
    EXPECT_EQ(Parsed(*chat, *prompt, " a fox").content, " a fox");
    EXPECT_EQ(Continue(*chat, Begun("", "Hm"))->text.bytes(),
              "<|im_start|>What is it?<|im_start|><think>\nHm");
}

}  // namespace
}  // namespace weft::chat
