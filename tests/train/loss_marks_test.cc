// Loss marks under the names of other trainers: read with the right polarity, or refused by name.
#include "train/data_case.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

const std::string kMarkAsked = "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n";
const std::string kMarkIn = "[A<|im_end|>]\n", kMarkOut = "A<|im_end|>\n";

OrderedJson MarkSaid(const char* role, const char* content) {
    return {{"role", role}, {"content", content}};
}

// Two questions with answers; `name` marks the first answer.
std::string MarkedFirst(const char* name, const OrderedJson& value) {
    OrderedJson first = MarkSaid("assistant", "A");
    first[name] = value;
    const OrderedJson user = MarkSaid("user", "U");
    const OrderedJson messages{user, first, user, MarkSaid("assistant", "A")};
    return Marked(OrderedJson{{"messages", messages}}.dump());
}

TEST(LossMarks, OfTurns) {
    const std::string both = kMarkAsked + kMarkIn + kMarkAsked + kMarkIn;
    const std::string second = kMarkAsked + kMarkOut + kMarkAsked + kMarkIn;
    for (const char* name : {"weight", "train", "training", "trainable", "loss", "loss_weight",
                             "loss_mask", "step_loss_mask"}) {
        for (const OrderedJson& yes : {OrderedJson(1), OrderedJson(true), OrderedJson(1.0)}) {
            EXPECT_EQ(MarkedFirst(name, yes), both) << name;
        }
        for (const OrderedJson& no : {OrderedJson(0), OrderedJson(false), OrderedJson(0.0)}) {
            EXPECT_EQ(MarkedFirst(name, no), second) << name;
        }
        EXPECT_EQ(MarkedFirst(name, nullptr), both) << name;
    }
    // torchtune's mark has the opposite meaning.
    EXPECT_EQ(MarkedFirst("masked", true), second);
    EXPECT_EQ(MarkedFirst("masked", 1), second);
    EXPECT_EQ(MarkedFirst("masked", false), both);
    EXPECT_EQ(MarkedFirst("masked", nullptr), both);
}

TEST(LossMarks, OfTurnsInShareGpt) {
    EXPECT_EQ(Marked(R"({"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value":
                         "A", "loss": false}, {"from": "human", "value": "U", "loss": null},
                         {"from": "gpt", "value": "A", "loss": true}]})"),
              kMarkAsked + kMarkOut + kMarkAsked + kMarkIn);
}

TEST(LossMarks, OthersOfTurnsAreRefused) {
    for (const char* name : {"ignore_loss", "lossMask", "train_on_turn", "learnable", "is_masked",
                             "no-loss", "Train", "mask_turn", "sample_weight", "supervised"}) {
        for (const OrderedJson& value : {OrderedJson(0), OrderedJson(true), OrderedJson("no")}) {
            const std::string said = MarkedFirst(name, value);
            EXPECT_NE(said.find("message 2: '" + std::string(name) + "' looks like a loss mask"),
                      std::string::npos)
                << said;
            EXPECT_NE(said.find("\"weight\": 0"), std::string::npos) << said;
        }
        EXPECT_EQ(MarkedFirst(name, nullptr), kMarkAsked + kMarkIn + kMarkAsked + kMarkIn) << name;
    }
    for (const OrderedJson& value : {OrderedJson(true), OrderedJson(0)}) {
        EXPECT_NE(MarkedFirst("mask", value).find("some trainers skip the tokens that it marks"),
                  std::string::npos);
    }
    const std::string fraction = MarkedFirst("loss_weight", 0.5);
    EXPECT_NE(fraction.find("'loss_weight' is 0.5"), std::string::npos) << fraction;
    EXPECT_NE(MarkedFirst("masked", 2).find("expected 1 or true (the turn is not learned)"),
              std::string::npos);
    const OrderedJson parts{{{"type", "text"}, {"text", "A"}, {"train", false}}};
    EXPECT_NE(MarkedFirst("content", parts).find("'train' marks a part of a turn"),
              std::string::npos);
    // Names that merely contain such a word are unrelated.
    for (const char* name : {"id", "trainer", "lossless", "unmasked", "weightless", "labels"}) {
        EXPECT_EQ(MarkedFirst(name, 1), kMarkAsked + kMarkIn + kMarkAsked + kMarkIn) << name;
    }
}

TEST(LossMarks, OfTokens) {
    for (const char* ids : {"tokens", "input_ids"}) {
        for (const char* name : {"loss", "loss_mask", "assistant_masks", "assistant_mask",
                                 "completion_mask", "response_mask"}) {
            OrderedJson record{{ids, {65, 66, 67, 68}}};
            record[name] = {0, 1, 0, 1};
            EXPECT_EQ(Marked(record.dump()), "A[B]C[D]") << record;
            record[name] = {false, true, false, true};
            EXPECT_EQ(Marked(record.dump()), "A[B]C[D]") << record;
            // With several masks, each must include the token.
            record["labels"] = {-100, 66, 67, -100};
            EXPECT_EQ(Marked(record.dump()), "A[B]CD") << record;
            record[name] = nullptr;
            EXPECT_EQ(Marked(record.dump()), "A[BC]D") << record;
            record[name] = {0, 1, 0};
            EXPECT_NE(Marked(record.dump()).find("not a list of 4"), std::string::npos);
            record[name] = {0, 1, 0, 0.5};
            EXPECT_NE(Marked(record.dump()).find("'" + std::string(name) + "' holds 0.5"),
                      std::string::npos);
        }
        OrderedJson padded{{ids, {0, 65, 66, 67}}, {"attention_mask", {0, 1, 1, 1}}};
        padded["assistant_masks"] = {0, 0, 1, 1};
        padded["special_tokens_mask"] = {1, 0, 0, 0};
        padded["position_ids"] = {0, 0, 1, 2};
        padded["length"] = 4;
        EXPECT_EQ(Marked(padded.dump()), "A[BC]");
        for (const char* name : {"mask", "label_mask", "prompt_mask", "label_ids", "target_ids",
                                 "weights", "lossWeights", "train_on"}) {
            OrderedJson record{{ids, {65, 66}}};
            record[name] = {0, 1};
            const std::string said = Marked(record.dump());
            EXPECT_NE(said.find("bad record: '" + std::string(name) + "'"), std::string::npos)
                << said;
            EXPECT_NE(said.find("'loss_mask' (1: learned)"), std::string::npos) << said;
        }
        for (const auto& [name, value] :
             {std::pair("weight", "0"), {"train", "false"}, {"masked", "true"}}) {
            const std::string said =
                Marked(fmt::format(R"({{"{}": [65, 66], "{}": {}}})", ids, name, value));
            EXPECT_NE(said.find("for the whole record"), std::string::npos) << said;
        }
    }
}

TEST(LossMarks, OfWholeRecords) {
    const char* const forms[] = {
        R"({"messages": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}])",
        R"({"conversations": [{"from": "human", "value": "U"}, {"from": "gpt", "value": "A"}])",
        R"({"prompt": "U", "completion": "A")",
        R"({"prompt": [{"role": "user", "content": "U"}], "completion": "A")",
        R"({"prompt": [], "completion": "A")",
        R"({"prompt": [], "completion": [{"role": "assistant", "content": "A"}])",
        R"({"instruction": "U", "output": "A")",
        R"({"question": "U", "answer": "A")",
        R"({"messages": " \r\n\t[{\"role\": \"assistant\", \"content\": \"A\"}]")",
        R"({"conversations": "\uFEFF[{\"from\": \"gpt\", \"value\": \"A\"}]")",
        R"({"conversation": " [{\"role\": \"assistant\", \"content\": \"A\"}]")",
        R"({"text": "A")",
    };
    for (const std::string form : forms) {
        const bool text = form.starts_with("{\"text");
        // Another column does not change the form. ('text' comes before 'conversation'.)
        if (!text && !form.starts_with("{\"conversation\"")) {
            EXPECT_EQ(Marked(form + R"(, "text": "zz"})"), Marked(form + "}")) << form;
        }
        const std::string plain = Marked(form + "}");
        ASSERT_EQ(plain.find("error"), std::string::npos) << plain;
        const auto refused = [&](const std::string& more, const std::string& words) {
            const std::string said = Marked(form + ", " + more + "}");
            EXPECT_TRUE(said.starts_with("bad record: ") && said.find(words) != said.npos)
                << form << more << "\n"
                << said;
        };
        for (const char* tag : {R"("label": false)", R"("label": true)", R"("kto_tag": false)",
                                R"("label": "False")", R"("label": "true")"}) {
            if (text) {
                EXPECT_EQ(Marked(form + ", " + tag + "}"), plain) << tag;
            } else {
                refused(tag, "a KTO record");
            }
        }
        refused(R"("weight": 0)", "'weight' is 0 for the whole record");
        refused(R"("train": false)", "'train' is false for the whole record");
        refused(R"("masked": true)", "'masked' is true for the whole record");
        refused(R"("loss_mask": [0, 1])", "'loss_mask' looks like a loss mask");
        refused(R"("assistant_masks": [0, 1])", "'assistant_masks' looks like a loss mask");
        refused(R"("labels": [-100, 5])", "'labels' looks like a loss mask");
        refused(R"("weights": [0, 1, 1])", "'weights' looks like a loss mask");
        refused(R"("mask": "Assistant")", "'mask' is \"Assistant\"");
        for (const char* fine :
             {R"("mask": "User")", R"("mask": null)", R"("label": 1)", R"("label": "spam")",
              R"("labels": [0, 1])", R"("loss": 2.5)", R"("weight": 0.5)", R"("train": true)",
              R"("attention_mask": [1, 1])", R"("source": "train")"}) {
            EXPECT_EQ(Marked(form + ", " + fine + "}"), plain) << form << fine;
        }
    }
}

}  // namespace
}  // namespace weft::train
