// Formats of training data in use: records of other tools, tables, plain text, compressed files,
// folders; and the errors for unusable ones.
#include <archive.h>
#include <archive_entry.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>

#include "train/data/data_files.h"
#include "train/data/table.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using test::TempDir;

const std::string kAsked = "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n";
const std::string kAnswered = "[A<|im_end|>]\n";

TEST(DataForms, ShareGpt) {
    EXPECT_EQ(Marked(R"({"conversations": [{"from": "human", "value": "U"},
                         {"from": "gpt", "value": "A"}], "id": 7, "source": ["x"]})"),
              kAsked + kAnswered);
    for (const char* user : {"human", "user", "Human", "USER"}) {
        for (const char* model : {"gpt", "assistant", "chatgpt", "model", "bard", "bing", "GPT",
                                  "bot", "Chatbot", "ai"}) {
            for (const auto& [role, content] :
                 {std::pair("from", "value"), std::pair("role", "content"),
                  std::pair("from", "content"), std::pair("role", "value")}) {
                for (const char* list : {"conversations", "messages"}) {
                    const chat::OrderedJson record{
                        {list, {{{role, user}, {content, "U"}}, {{role, model}, {content, "A"}}}}};
                    EXPECT_EQ(Marked(record.dump()), kAsked + kAnswered) << record;
                }
            }
        }
    }
    // A system message in its own column, and the same one in the list.
    const std::string system = "<|im_start|>system\nS<|im_end|>\n";
    EXPECT_EQ(Marked(R"({"conversations": [{"from": "human", "value": "U"},
                         {"from": "gpt", "value": "A"}], "system": "S", "tools": ""})"),
              system + kAsked + kAnswered);
    EXPECT_EQ(Marked(R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human",
                         "value": "U"}, {"from": "gpt", "value": "A"}], "system": "S"})"),
              system + kAsked + kAnswered);
    // axolotl's marks.
    EXPECT_EQ(Marked(R"({"conversations": [{"from": "human", "value": "U", "train": false},
                         {"from": "gpt", "value": "A", "train": false}, {"from": "human", "value":
                         "U", "train": true}, {"from": "gpt", "value": "A", "train": true}]})"),
              kAsked + "A<|im_end|>\n" + kAsked + kAnswered);
    EXPECT_NE(Marked(R"({"conversations": [{"from": "alien", "value": "U"}]})")
                  .find("message 1 of 'conversations': 'from' is 'alien'; expected human, gpt"),
              std::string::npos);
}

// A system message beside the list of messages, in any form.
TEST(DataForms, SystemBesideMessages) {
    const std::string system = "<|im_start|>system\nS<|im_end|>\n",
                      all = system + kAsked + kAnswered;
    const std::string turns = R"([{"role": "user", "content": "U"}, {"role": "assistant",
                                   "content": "A"}])";
    for (const char* list : {"messages", "conversations"}) {
        for (const char* name : {"system", "system_prompt", "system_message", "systemPrompt",
                                 "systemMessage", "instructions"}) {
            const bool other = name == std::string_view("instructions");
            const auto record = [&](const std::string& messages, const std::string& value) {
                return Marked(
                    fmt::format(R"({{"{}": {}, "{}": {}}})", name, value, list, messages));
            };
            EXPECT_EQ(record(turns, R"("S")"), all);
            EXPECT_EQ(record(turns, R"([{"type": "text", "text": "S"}])"),
                      other ? kAsked + kAnswered : all);
            EXPECT_EQ(record(turns, R"("")"), kAsked + kAnswered);
            EXPECT_EQ(record(turns, "null"), kAsked + kAnswered);
            if (other) {
                EXPECT_EQ(record(turns, "5"), kAsked + kAnswered);  // another meaning
            } else {
                EXPECT_NE(record(turns, "true").find(fmt::format("'{}' is boolean", name)),
                          std::string::npos);
            }
            for (const char* role : {"system", "developer"}) {
                std::string with = turns;
                with.insert(1, fmt::format(R"({{"role": "{}", "content": "S"}}, )", role));
                EXPECT_EQ(record(with, R"("S")"), all);
                EXPECT_NE(record(with, R"("T")")
                              .find(fmt::format("'{}' differs from the system message", name)),
                          std::string::npos);
            }
        }
    }
    EXPECT_EQ(Marked(R"({"system": "S", "prompt": "U", "completion": "A"})"), all);
    EXPECT_EQ(Marked(R"({"system": "S", "prompt": [{"role": "user", "content": "U"}],
                         "completion": "A"})"),
              all);
    EXPECT_EQ(Marked(R"({"system": "S", "query": "U", "response": "A"})"), all);
    EXPECT_EQ(Marked(R"({"system_prompt": "S", "instruction": "U", "output": "A"})"), all);
    EXPECT_NE(Marked(R"({"system_prompt": "S", "question": "U", "answer": "A"})")
                  .find("'system_prompt' beside 'question'"),
              std::string::npos);
}

// An answer that is missing is an error, not an empty answer; other members may hold it.
TEST(DataForms, MissingAnswersAreErrors) {
    const auto answer = [](const std::string& members) {
        return Marked(R"({"messages": [{"role": "user", "content": "U"}, {"role": "assistant")" +
                      members + "}]}");
    };
    for (const char* members : {"", R"(, "content": null)", R"(, "content": [])",
                                R"(, "content": null, "tool_calls": [])", R"(, "answer": "A")",
                                R"(, "tool_call": "none")", R"(, "reasoning_content": null)"}) {
        EXPECT_NE(answer(members).find("message 2 of 'messages': the assistant's message has no "
                                       "'content'"),
                  std::string::npos)
            << answer(members);
    }
    EXPECT_EQ(answer(R"(, "text": "A")"), kAsked + kAnswered);
    EXPECT_EQ(answer(R"(, "content": null, "value": "A")"), kAsked + kAnswered);
    EXPECT_EQ(answer(R"(, "tool_call": {"name": "f", "arguments": {}})"),
              answer(R"(, "tool_calls": [{"name": "f", "arguments": {}}])"));
    EXPECT_EQ(answer(R"(, "reasoning_content": "R")").find("error"), std::string::npos);
}

TEST(DataForms, EmptyAnswersAreReported) {
    const Encoder encoder = ByteEncoder();
    const auto read = [&](const char* record) {
        return encoder.Encode(Must(ParseRecord(record))).ok();
    };
    EXPECT_TRUE(read(R"({"instruction": "i", "output": "A"})"));
    EXPECT_EQ(encoder.TakeNote(), "");
    EXPECT_TRUE(read(R"({"instruction": "i", "output": ""})"));
    EXPECT_TRUE(read(R"({"question": "q", "answer": " "})"));
    EXPECT_TRUE(read(R"({"prompt": "p", "completion": ""})"));
    EXPECT_TRUE(read(R"({"messages": [{"role": "user", "content": "U"},
        {"role": "assistant", "content": ""}, {"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {}}]}]})"));
    const std::string note = encoder.TakeNote();
    EXPECT_TRUE(note.starts_with("4 of the answers read so far are empty")) << note;
    EXPECT_EQ(encoder.TakeNote(), "");
}

TEST(DataForms, UnknownRolesAreErrors) {
    for (const char* role : {"bott", "critic", "", "asistant"}) {
        const chat::OrderedJson record{
            {"messages",
             {{{"role", "user"}, {"content", "U"}}, {{"role", role}, {"content", "A"}}}}};
        const std::string said = Marked(record.dump());
        EXPECT_NE(said.find(fmt::format("message 2 of 'messages': 'role' is '{}'", role)),
                  std::string::npos)
            << said;
    }
}

// ShareGPT's calls and results equal OpenAI's.
TEST(DataForms, ShareGptCalls) {
    const std::string wanted = Marked(R"({"messages": [{"role": "user", "content": "U"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
            {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "R"}, {"role": "assistant", "content": "A"}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                   "parameters": {"type": "object", "properties": {}}}}]})");
    ASSERT_NE(wanted.find("\"a\": 1"), std::string::npos) << wanted;
    for (const char* call : {"function_call", "function", "tool_call"}) {
        for (const char* result : {"observation", "tool", "function_response", "function"}) {
            for (const bool text : {false, true}) {
                chat::OrderedJson record = chat::OrderedJson::parse(R"({"conversations": [
                    {"from": "human", "value": "U"}, {"from": "", "value":
                    "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"}, {"from": "", "value": "R"},
                    {"from": "gpt", "value": "A"}], "tools": [{"name": "f", "description": "d",
                    "parameters": {"type": "object", "properties": {}}}]})");
                record["conversations"][1]["from"] = call;
                record["conversations"][2]["from"] = result;
                if (text) {
                    for (const char* name : {"conversations", "tools"}) {
                        std::string dumped = record[name].dump();
                        record[name] = std::move(dumped);
                    }
                }
                EXPECT_EQ(Marked(record.dump()), wanted) << record;
            }
        }
    }
}

// OpenAI's older names of tools and calls.
TEST(DataForms, OlderFunctions) {
    const auto record = [](const char* more) {
        chat::OrderedJson made = chat::OrderedJson::parse(R"({"messages": [
            {"role": "user", "content": "U"}, {"role": "assistant", "content": null,
             "function_call": {"name": "f", "arguments": "{\"a\": 1}"}},
            {"role": "function", "name": "f", "content": "R"},
            {"role": "assistant", "content": "A"}]})");
        made.update(chat::OrderedJson::parse(more));
        return made;
    };
    const std::string function = R"({"name": "f", "description": "says",
                                     "parameters": {"type": "object", "properties": {}}})";
    const std::string wrapped = R"([{"type": "function", "function": )" + function + "}]";
    const std::string none = Marked(record("{}").dump());
    const std::string wanted = Marked(record((R"({"tools": )" + wrapped + "}").c_str()).dump());
    ASSERT_NE(wanted.find("says"), std::string::npos) << wanted;
    ASSERT_EQ(none.find("says"), std::string::npos) << none;
    const std::string bare = "[" + function + "]";
    const std::string text = chat::OrderedJson(bare).dump();
    for (const std::string& more :
         {R"({"functions": )" + bare + "}", R"({"functions": )" + text + "}",
          R"({"functions": )" + wrapped + "}", R"({"functions": )" + bare + R"(, "tools": []})",
          R"({"functions": )" + bare + R"(, "tools": null, "function_call": "auto"})",
          R"({"functions": )" + bare + R"(, "function_call": {"name": "f"}})",
          R"({"functions": [{"name": "g"}], "tools": )" + wrapped + "}"}) {
        EXPECT_EQ(Marked(record(more.c_str()).dump()), wanted) << more;
    }
    for (const std::string& more :
         {R"({"functions": )" + bare + R"(, "function_call": "none"})",
          R"({"tools": )" + wrapped + R"(, "tool_choice": "none"})",
          std::string(R"({"functions": 3})"), std::string(R"({"functions": "sum"})"),
          std::string(R"({"functions": ["sum"]})"), std::string(R"({"functions": []})")}) {
        EXPECT_EQ(Marked(record(more.c_str()).dump()), none) << more;
    }
    EXPECT_NE(Marked(record(R"({"functions": "[{'name': 'f'}]"})").dump())
                  .find("'functions' is a string that is not JSON"),
              std::string::npos);
}

TEST(DataForms, Alpaca) {
    EXPECT_EQ(Marked(R"({"instruction": "U", "input": "", "output": "A"})"), kAsked + kAnswered);
    EXPECT_EQ(Marked(R"({"instruction": "U", "output": "A", "text": "Below is ...", "id": 1})"),
              kAsked + kAnswered);
    const std::string with_input =
        "<|im_start|>user\nU\nI<|im_end|>\n<|im_start|>assistant\n" + kAnswered;
    EXPECT_EQ(Marked(R"({"instruction": "U", "input": "I", "output": "A"})"), with_input);
    EXPECT_EQ(Marked(R"({"instruction": "U", "context": "I", "response": "A", "category": "qa"})"),
              with_input);
    EXPECT_EQ(Marked(R"({"instruction": "U", "input": null, "output": "A", "system": "S",
                         "history": [["V", "B"]]})"),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nV<|im_end|>\n"
              "<|im_start|>assistant\n[B<|im_end|>]\n" +
                  kAsked + kAnswered);
    // Without a template: the text of Stanford Alpaca.
    const auto plain = Must(Encoder::Make(Bytes(), nullptr, 1));
    const auto marked = [&](const char* record) {
        const auto sample = plain.Encode(Must(ParseRecord(record)));
        return sample.ok() ? Marked(*sample) : sample.error().message;
    };
    EXPECT_EQ(marked(R"({"instruction": "U", "input": "I", "output": "A"})"),
              "Below is an instruction that describes a task, paired with an input that provides "
              "further context. Write a response that appropriately completes the request.\n\n"
              "### Instruction:\nU\n\n### Input:\nI\n\n### Response:\n[A<|endoftext|>]");
    EXPECT_EQ(marked(R"({"instruction": "U", "output": "A"})"),
              "Below is an instruction that describes a task. Write a response that appropriately "
              "completes the request.\n\n### Instruction:\nU\n\n### Response:\n[A<|endoftext|>]");
    EXPECT_NE(Marked(R"({"instruction": "U", "input": true, "output": "A"})")
                  .find("'input' is boolean; expected a string"),
              std::string::npos);
    EXPECT_NE(Marked(R"({"instruction": "U"})").find("no 'output' in the record"),
              std::string::npos);
    EXPECT_NE(Marked(R"({"instruction": "U", "output": "A", "history": [["V"]]})").find("pairs"),
              std::string::npos);
}

TEST(DataForms, PromptsAndCompletionsOfMessages) {
    EXPECT_EQ(Marked(R"({"prompt": [{"role": "user", "content": "U"}],
                         "completion": [{"role": "assistant", "content": "A"}]})"),
              kAsked + kAnswered);
    // Answers within the prompt are not part of the completion.
    EXPECT_EQ(Marked(R"({"prompt": [{"role": "user", "content": "U"}, {"role": "assistant",
                         "content": "B"}, {"role": "user", "content": "U"}],
                         "completion": [{"role": "assistant", "content": "A"}]})"),
              kAsked + "B<|im_end|>\n" + kAsked + kAnswered);
    EXPECT_EQ(Marked(R"({"prompt": "U", "completion": [{"role": "assistant", "content": "A"}]})"),
              kAsked + kAnswered);
    EXPECT_EQ(Marked(R"({"prompt": [{"role": "user", "content": "U"}], "completion": "A"})"),
              kAsked + kAnswered);
    EXPECT_EQ(Marked(R"({"prompt": "1+1=", "response": "2"})"), "1+1=[2<|endoftext|>]");
    EXPECT_EQ(Marked(R"({"query": "U", "response": "A"})"), kAsked + kAnswered);
    EXPECT_NE(Marked(R"({"query": "U"})").find("no 'output' in the record"), std::string::npos);
}

// Unrelated columns are ignored, whatever they hold.
TEST(DataForms, UnrelatedColumns) {
    const char* const values[] = {"123",     "\"x\"",  "null", "true",         "[]",
                                  "[\"a\"]", "[1, 2]", "{}",   "[{\"a\": 1}]", "1.5"};
    for (const char* name : {"tokens", "input_ids", "text", "prompt", "completion", "question",
                             "answer", "labels", "loss", "instruction", "id", "weight"}) {
        for (const char* value : values) {
            const std::string more = std::string(", \"") + name + "\": " + value + "}";
            EXPECT_EQ(Marked(R"({"messages": [{"role": "user", "content": "U"}, {"role":
                                 "assistant", "content": "A"}])" +
                             more),
                      kAsked + kAnswered)
                << more;
        }
    }
    for (const char* value : {"123", "\"x\"", "[]", "[\"a\"]", "{}", "true", "null"}) {
        for (const char* name :
             {"tokens", "input_ids", "messages", "conversations", "completion"}) {
            const std::string record =
                std::string(R"({"text": "all", ")") + name + "\": " + value + "}";
            const bool none = std::string_view(value) == "[]";
            if (none && std::string_view(name).ends_with("s") && name[0] != 't' && name[0] != 'i') {
                continue;  // a conversation without messages
            }
            EXPECT_EQ(Marked(record), "[all<|endoftext|>]") << record;
        }
    }
}

TEST(DataForms, ErrorsNameFieldAndForms) {
    const auto said = [](const char* record, const char* words) {
        const std::string error = Marked(record);
        EXPECT_NE(error.find(words), std::string::npos) << error;
        for (const char* form : {"'messages'", "'conversations'", "'prompt' and 'completion'",
                                 "'instruction' and 'output'", "'question' and 'answer'", "'text'",
                                 "'tokens'", "'input_ids'"}) {
            EXPECT_NE(error.find(form), std::string::npos) << error;
        }
    };
    said(R"({"txt": "a", "n": 1})", "a record with 'txt', 'n'");
    said(R"({"text": ["a"]})", "'text' is array; expected a string");
    said(R"({"messages": {"role": "user"}})", "'messages' is object; expected a list of messages");
    said(R"({"prompt": {}, "completion": "A"})", "'prompt' is object; expected a string");
    for (const char* preference :
         {R"({"prompt": "a", "chosen": "b", "rejected": "c"})",
          R"({"messages": [{"role": "user", "content": "U"}], "chosen": "b", "rejected": "c"})",
          R"({"chosen": [{"role": "user", "content": "U"}], "rejected": []})"}) {
        EXPECT_NE(Marked(preference).find("--loss dpo"), std::string::npos);
    }
    // A pair in other names: the record has a form without them.
    const std::string pair = R"({"prompt": "a", "completion": "b", )";
    for (const char* name :
         {"rejected_response", "rejected_messages", "response_rejected", "rejected_output",
          "rejectedAnswer", "REJECTED", "chosen_response", "response_chosen", "is_chosen"}) {
        for (const char* value : {R"("c")", "false", R"([{"role": "user"}])"}) {
            EXPECT_NE(Marked(fmt::format("{}\"{}\": {}}}", pair, name, value))
                          .find(fmt::format("'{}' makes the record a preference", name)),
                      std::string::npos)
                << name << value;
        }
        for (const char* value : {"null", "0.5", R"("")"}) {
            EXPECT_EQ(Marked(fmt::format("{}\"{}\": {}}}", pair, name, value)),
                      Marked(pair + R"("n": 1})"));
        }
    }
    const std::string printed = Marked(R"({"messages": "[{'role': 'user'}]"})");
    EXPECT_NE(printed.find("'messages' is a string that is not JSON"), std::string::npos);
}

// Marked texts of a file's records, or the error.
std::string FileMarked(const std::vector<std::string>& paths, int prompt_type = 1) {
    const auto data = DataSet::Open({.specs = paths}, ByteEncoder(prompt_type));
    if (!data.ok()) return "error: " + data.error().message;
    std::string all;
    for (uint64_t i = 0; i < (*data)->size(Part::kTrain); ++i) {
        const auto sample = (*data)->Read(Part::kTrain, i);
        all += (sample.ok() ? Marked(*sample) : "error: " + sample.error().message) + "|";
    }
    return all;
}

// A record whose pictures, sounds or films training can't read is an error.
TEST(DataForms, RecordsWithMediaAreErrors) {
    const TempDir folder;
    const auto read = [&](const std::string& record) {
        return FileMarked({WriteText(folder, "m.jsonl", record + "\n")});
    };
    const std::string forms[] = {R"({"text": "a")", R"({"prompt": "a", "completion": "b")",
                                 R"({"messages": [{"role": "user", "content": "U"},
                                    {"role": "assistant", "content": "A"}])"};
    for (std::string form : forms) {
        std::erase(form, '\n');
        for (const std::string name : {"images", "image", "videos", "video", "audios", "audio"}) {
            const std::string member = form + ", \"" + name + "\": ";
            for (const char* value : {R"(["a.jpg"])", R"("a.jpg")", R"({"path": "a.jpg"})"}) {
                const std::string error = read(member + value + "}");
                EXPECT_NE(error.find("line 1: it has '" + name + "', and training reads"),
                          std::string::npos)
                    << error;
            }
            for (const char* value : {"[]", R"("")", "null", "{}", "3"}) {
                EXPECT_EQ(read(member + value + "}"), read(form + "}")) << member << value;
            }
        }
    }
    // Nulls of pandas and polars are none.
    const std::string member = forms[0] + R"(, "image": )";
    for (const char* value : {"[null]", R"([{"a": []}])", R"({"bytes": null, "path": null})"}) {
        EXPECT_EQ(read(member + value + "}"), read(forms[0] + "}")) << value;
    }
    const std::string error = read(member + R"([null, {"bytes": null, "path": "a.jpg"}]})");
    EXPECT_NE(error.find("it has 'image'"), std::string::npos) << error;
    // A message of Ollama has its pictures itself.
    const auto told = [&](const std::string& name) {
        return read(R"({"messages": [{"role": "user", "content": "U", ")" + name +
                    R"(": ["a.jpg"]}, {"role": "assistant", "content": "A"}]})");
    };
    EXPECT_NE(told("images").find("line 1: message 1 of 'messages': it has 'images', and training"),
              std::string::npos)
        << told("images");
    EXPECT_EQ(told("names"), kAsked + kAnswered + "|");
}

// The marked samples of a file in the folder, or its error, without the folder's path.
std::string MarkedIn(const TempDir& folder, const std::string& name, const std::string& text) {
    std::string said = FileMarked({WriteText(folder, name, text)});
    const std::string place = folder / "";
    for (size_t at; (at = said.find(place)) != said.npos;) said.erase(at, place.size());
    return said;
}

TEST(DataForms, ConversationsInTables) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|";
    const auto marked = [&](const std::string& name, const std::string& text) {
        return MarkedIn(folder, name, text);
    };
    const std::string asks = R"("[{""role"": ""user"", ""content"": ""U""}]")";
    const std::string answers = R"("[{""content"": ""A"", ""from"": ""gpt""}]")";
    EXPECT_EQ(marked("t.csv", "prompt,completion\n" + asks + "," + answers + "\n"),
              kAsked + kAnswered + "|");
    EXPECT_EQ(marked("t.csv", "prompt,completion\n" + asks + ",A\n"), kAsked + kAnswered + "|");
    EXPECT_EQ(marked("t.csv", "prompt,completion\na,\"[{\"\"n\"\": 1}]\"\n[{,[\n"),
              "a[[{\"n\": 1}]" + e + "[{[[" + e);
    EXPECT_EQ(marked("t.csv", "prompt,completion\na,\"[{\"\"role\"\": \"\"victim\"\"}]\"\n"),
              "a[[{\"role\": \"victim\"}]" + e);
    EXPECT_EQ(marked("t.csv", "prompt,completion\na,[{'role': 'victim'}]\n"),
              "a[[{'role': 'victim'}]" + e);
    // Messages without content, in a file that can hold lists, and of an instruction: texts.
    const std::string ann = R"("[{""name"": ""Ann"", ""role"": ""user""}]")";
    EXPECT_EQ(marked("t.csv", "prompt,completion\na," + ann + "\n"),
              R"(a[[{"name": "Ann", "role": "user"}])" + e);
    const std::string json = R"([{\"role\": \"user\", \"content\": \"U\"}])";
    EXPECT_EQ(marked("t.jsonl", R"({"prompt": "a", "completion": ")" + json + "\"}\n"),
              R"(a[[{"role": "user", "content": "U"}])" + e);
    EXPECT_EQ(marked("t.csv", "instruction,response\na," + asks + "\n").find("error"),
              std::string::npos);
    // Columns of other forms may have another notation.
    EXPECT_EQ(marked("t.csv", "text,prompt\nall,[{'role': 'user'}]\n"), "[all" + e);
    for (const char* text : {"[{'role': 'user'}]", "[{'n': 1, 'from' : 'gpt'}]"}) {
        EXPECT_NE(marked("t.csv", fmt::format("prompt,completion\n\"{}\",b\n", text))
                      .find("t.csv: line 2: 'prompt' is a string that is not JSON"),
                  std::string::npos)
            << text;
    }
}

TEST(DataForms, Tables) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|";
    const auto marked = [&](const std::string& name, const std::string& text) {
        return MarkedIn(folder, name, text);
    };
    const std::string wanted = "a[b" + e + "c, d[\"e\"\nf" + e;
    EXPECT_EQ(marked("t.csv", "prompt,completion\na,b\n\"c, d\",\"\"\"e\"\"\nf\"\n"), wanted);
    EXPECT_EQ(
        marked("t.csv", "\xEF\xBB\xBFprompt,completion\r\na,b\r\n\r\n\"c, d\",\"\"\"e\"\"\nf\""),
        wanted);
    EXPECT_EQ(marked("t.csv", "\"id\";Prompt;COMPLETION\n1;a;b\n2;c, d;\"\"\"e\"\"\nf\"\n"),
              wanted);
    EXPECT_EQ(marked("t.tsv", "prompt\tcompletion\tn\na\tb\t1\nc, d\t\"\"\"e\"\"\nf\"\t2"), wanted);
    EXPECT_EQ(marked("t", "n,prompt,completion\n,a,b\n,\"c, d\",\"\"\"e\"\"\nf\"\n"), wanted);
    // A quote within a field is a character, blanks are kept, and the last field may be missing.
    EXPECT_EQ(marked("t.csv", "prompt,completion\n5'10\" , b \n"), "5'10\" [ b " + e);
    EXPECT_EQ(marked("t.csv", "text,source\nall\nmore,x\n"), "[all" + e + "[more" + e);
    EXPECT_EQ(marked("t.tsv", "source\ttext\n\tall\n"), "[all" + e);
    // Formats of other tools as columns.
    EXPECT_EQ(marked("t.csv", "instruction,input,output\nU,,A\n"), kAsked + kAnswered + "|");
    EXPECT_EQ(marked("t.csv",
                     "messages,n\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"U\"\"}, "
                     "{\"\"role\"\": \"\"assistant\"\", \"\"content\"\": \"\"A\"\"}]\",3\n"),
              kAsked + kAnswered + "|");
    // Errors name the line.
    EXPECT_TRUE(marked("t.csv", "prompt,completion\n\"a\nb\",c\nd,e,f\n")
                    .find("error: t.csv: line 4: 3 fields; the first row names 2 columns") !=
                std::string::npos);
    EXPECT_TRUE(marked("t.csv", "text\nfine\n\"a\"b\n")
                    .find("t.csv: line 3: field 1 continues after its closing quote") !=
                std::string::npos);
    EXPECT_TRUE(marked("t.csv", "text\nfine\n\"a\nb\n")
                    .starts_with("error: t.csv: line 3: a field begins with a quote"));
    EXPECT_TRUE(
        marked("t.csv", "a,b\n1,2\n")
            .starts_with("error: t.csv: line 2: a record with 'a', 'b'; expected 'messages'"));
    EXPECT_TRUE(marked("t.csv", "text\nfine\n\xE4\n").find("t.csv: line 3: not UTF-8") !=
                std::string::npos);
    EXPECT_TRUE(marked("t.csv", "text\n").find("no records") != std::string::npos);
    // Columns with one name, of which only one could be read.
    EXPECT_TRUE(
        marked("t.csv", "\nprompt,completion,Prompt\na,b,c\n")
            .starts_with("error: t.csv: line 2: the first row has the column 'prompt' twice"));
    EXPECT_EQ(marked("t.csv", "prompt,completion,,\na,b,,\n"), "a[b" + e);
}

// As pyarrow, with which datasets reads JSON lines and Parquet files.
TEST(DataForms, RepeatedKeysAreErrors) {
    const TempDir folder;
    for (const std::string record :
         {R"({"text": "a", "text": "b"})", R"({"text": "a", "n": NaN, "text": "b"})",
          R"({"text": "a", "n": [{"text": 1, "text": 1}]})"}) {
        const std::string said = FileMarked({WriteText(folder, "k.jsonl", record + "\n")});
        EXPECT_NE(said.find("k.jsonl: line 1: not valid JSON: "), std::string::npos) << said;
        EXPECT_NE(said.find("a repeated key in an object: 'text'"), std::string::npos) << said;
    }
    const std::string text = R"([{\"role\": \"user\", \"role\": \"user\", \"content\": \"U\"}])";
    const std::string said = Marked(R"({"messages": ")" + text + "\"}");
    EXPECT_NE(said.find("a repeated key in an object: 'role'"), std::string::npos) << said;
}

// Line ends of classic Mac OS, in tables and elsewhere; within quotes they belong to the field.
TEST(DataForms, CarriageReturns) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|", both = "a[b" + e + "c[d" + e;
    const auto marked = [&](const std::string& name, const std::string& text) {
        return FileMarked({WriteText(folder, name, text)});
    };
    for (const std::string end : {"\r", "\n", "\r\n", "\r\r\n", "\r\r"}) {
        for (const std::string& last : {std::string(), end}) {
            EXPECT_EQ(marked("t.csv", "prompt,completion" + end + "a,b" + end + "c,d" + last),
                      both);
            EXPECT_EQ(marked("t", "prompt;completion" + end + "a;b" + end + "c;d" + last), both);
        }
        EXPECT_EQ(marked("t.csv", "text" + end + "\"a\nb\rc\"" + end + "d" + end),
                  "[a\nb\rc" + e + "[d" + e);
        if (end.size() > 1) continue;
        EXPECT_EQ(marked("t.jsonl", "{\"text\": \"a\"}" + end + "{\"text\": \"b\"}" + end),
                  "[a" + e + "[b" + e);
        EXPECT_EQ(marked("t.txt", "a" + end + "b" + end), "[a" + e + "[b" + e);
        EXPECT_EQ(marked("t.txt", "a" + end + "b" + end + end + "c"),
                  "[a" + end + "b" + e + "[c" + e);
        EXPECT_EQ(marked("t.json", "{" + end + "\"text\":" + end + "\"a\"}" + end), "[a" + e);
    }
    // A carriage return within a line belongs to the line.
    EXPECT_EQ(marked("t.txt", "a\rb\nc"), "[a\rb" + e + "[c" + e);
    const std::string bad = marked("t.csv", "prompt,completion\ra,b\rc,d,e\r");
    EXPECT_NE(bad.find("t.csv: line 3: 3 fields"), std::string::npos) << bad;
}

// Excel's first line names the delimiter.
TEST(DataForms, DelimiterLines) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|", both = "a[b" + e + "c, d[e" + e;
    const auto marked = [&](const std::string& name, const std::string& text) {
        return FileMarked({WriteText(folder, name, text)});
    };
    for (const std::string mark : {"", "\xEF\xBB\xBF"}) {
        for (const std::string end : {"\n", "\r\n", "\r"}) {
            for (const char delimiter : {';', '|', '\t'}) {
                const std::string d(1, delimiter);
                for (const std::string& line : {"sep=" + d, "SEP=" + d, "\"sep=" + d + "\""}) {
                    for (const char* name : {"t.csv", "t"}) {
                        const std::string text = mark + line + end + "prompt" + d + "completion" +
                                                 end + "a" + d + "b" + end + "c, d" + d + "e" + end;
                        EXPECT_EQ(marked(name, text), both) << text;
                    }
                }
            }
        }
    }
    EXPECT_NE(marked("t.csv", "sep=;\nprompt;completion\na;b\nc;d;e\n").find("line 4: 3 fields"),
              std::string::npos);
    EXPECT_NE(marked("t.csv", "sep=;\n").find("no records"), std::string::npos);
    EXPECT_EQ(marked("t.txt", "sep=;\ntext\n"), "[sep=;" + e + "[text" + e);
}

// WildChat-1M's and lmsys-chat-1m's name of the list. Others are renamed, and not cut out.
TEST(DataForms, OtherNamesOfConversations) {
    const std::string list =
        R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
    EXPECT_EQ(Marked(R"({"conversation_id": "7", "turn": 1, "conversation": )" + list),
              Marked("{\"messages\": " + list));
    EXPECT_EQ(Marked(R"({"text": "t", "conversation": )" + list), Marked(R"({"text": "t"})"));
    const std::string said = Marked("{\"preferred_output\": " + list);
    EXPECT_TRUE(
        said.ends_with(". If 'preferred_output' is the conversation, rename it to "
                       "'messages'"))
        << said;
}

// datasets' Json gives numbers for texts such as "42", and Python writes NaN for missing numbers.
TEST(DataForms, NumbersInThePlaceOfTexts) {
    EXPECT_EQ(Marked(R"({"question": "q", "answer": 42})"),
              Marked(R"({"question": "q", "answer": "42"})"));
    EXPECT_EQ(Marked(R"({"prompt": 1, "completion": -2.5})"),
              Marked(R"({"prompt": "1", "completion": "-2.5"})"));
    const auto said = [](const char* user, const char* answer) {
        return Marked(fmt::format(R"({{"messages": [{{"role": "user", "content": {}}}, )"
                                  R"({{"role": "assistant", "content": {}}}]}})",
                                  user, answer));
    };
    EXPECT_EQ(said("6", "7"), said("\"6\"", "\"7\""));
    // The form equals that of the same record with texts, whatever other columns it has.
    for (const char* record :
         {R"({"instruction": "i", "input": "", "output": 5, "text": "i and 5"})",
          R"({"prompt": "p", "completion": 5, "text": "p and 5"})",
          R"({"question": "q", "context": 7, "answer": 5, "text": "q and 5"})",
          R"({"prompt": [{"role": "user", "content": "p"}], "completion": 5})",
          R"({"instruction": "i", "output": 5, "conversation": [{"role": "user"}]})"}) {
        std::string texts = record;
        for (const char digit : {'5', '7'}) {
            const size_t at = texts.find(std::string(": ") + digit);
            if (at != texts.npos) texts.replace(at + 2, 1, std::string("\"") + digit + "\"");
        }
        ASSERT_NE(texts, record);
        EXPECT_EQ(Marked(record), Marked(texts)) << record;
    }
    // A value that can't be read keeps the form, whatever other columns the record has.
    for (const char* wrong : {"18446744073709551616", "123456789012345678901234567890", "true"}) {
        const std::string kind = wrong[0] == 't' ? "boolean" : "a number of too many digits";
        for (const char* record :
             {R"({"instruction": "i", "output": 5, "text": "i and 5"})",
              R"({"instruction": "i", "input": 5, "output": "o", "text": "i and 5"})",
              R"({"instruction": 5, "response": "o", "text": "i and 5"})",
              R"({"prompt": "p", "completion": 5, "text": "p and 5"})",
              R"({"prompt": 5, "response": "c", "text": "p and 5"})",
              R"({"prompt": [{"role": "user", "content": "p"}], "completion": 5, "text": "t"})",
              R"({"question": "q", "answer": 5, "text": "q and 5"})",
              R"({"question": "q", "context": 5, "answer": "a", "text": "q and 5"})",
              R"({"instruction": "i", "output": 5, "conversation": [{"role": "user"}]})",
              R"({"text": 5, "conversation": [{"role": "user"}]})"}) {
            std::string changed = record;
            changed.replace(changed.find(": 5") + 2, 1, wrong);
            const std::string error = Marked(changed);
            EXPECT_TRUE(error.starts_with("bad record: '") &&
                        error.find("' is " + kind + "; expected a string") != error.npos)
                << changed << error;
        }
    }
    // As a text, such a number would not keep the digits of the file.
    const std::string digits = "123456789012345678901234567890";
    EXPECT_NE(Marked(R"({"question": "q", "answer": )" + digits + "}")
                  .find("'answer' is a number of too many digits"),
              std::string::npos);
    EXPECT_NE(said("6", digits.c_str()).find("'content': expected a string"), std::string::npos);
    EXPECT_NE(Marked(R"({"question": "q", "answer": 42, "weight": 0})").find("'weight'"),
              std::string::npos);
    EXPECT_NE(Marked(R"({"question": "q", "answer": true})").find("'answer' is boolean"),
              std::string::npos);
    for (const char* score : {"NaN", "Infinity", "-Infinity", "[NaN, -Infinity]"}) {
        EXPECT_EQ(Marked(fmt::format(R"({{"s": {}, "text": "NaN \" NaN"}})", score)),
                  Marked(R"({"text": "NaN \" NaN"})"))
            << score;
    }
    EXPECT_NE(Marked(R"({"text": NaNs})").find("not valid JSON: line 1, column 10"),
              std::string::npos);
    EXPECT_NE(Marked(R"({"text": NaN})").find("a record with 'text'"), std::string::npos);
}

// Each member that is a text, also within a list.
TEST(DataForms, NumbersInEachMember) {
    for (const char* record :
         {R"({"instruction": "i", "output": "o", "history": [["a", 4], [5, "b"]]})",
          R"({"question": "q", "context": [4, "b"], "answer": "a"})",
          R"({"QUESTION": "q", "context": {"contexts": ["b", 4]}, "LONG_ANSWER": "a"})",
          R"({"system": 4, "instruction": "i", "output": "o"})",
          R"({"system": 4, "messages": [{"role": "user", "content": "U"},
              {"role": "assistant", "content": "A"}]})",
          R"({"text": 4})"}) {
        std::string texts = record;
        for (const char* digit : {"4", "5"}) {
            const size_t at = texts.find(digit);
            if (at != texts.npos) texts.replace(at, 1, fmt::format("\"{}\"", digit));
        }
        EXPECT_EQ(Marked(record), Marked(texts)) << record;
        EXPECT_EQ(Marked(record).find("bad record"), std::string::npos) << Marked(record);
    }
}

// Records inside a single record's list are refused by name.
TEST(DataForms, WrappedRecordsAreNamed) {
    for (const int indent : {-1, 2}) {
        const TempDir folder;
        const chat::OrderedJson wrapped{{"version", 1}, {"data", {{{"text", "a"}}}}};
        const std::string said = FileMarked({WriteText(folder, "t.json", wrapped.dump(indent))});
        EXPECT_NE(said.find("a record with 'version', 'data'"), std::string::npos) << said;
        EXPECT_NE(said.find("jq -c '.[\"data\"][]'"), std::string::npos) << said;
    }
}

// Rows across buffer boundaries, and the split.
TEST(DataForms, LargeTables) {
    const TempDir folder;
    std::string text = "text\n";
    constexpr int kRows = 3000;
    const auto row = [](int i) {
        return std::to_string(i) + "\n\"," + std::string(static_cast<size_t>(i * 7919 % 900), 'x');
    };
    for (int i = 0; i < kRows; ++i) {
        std::string quoted = row(i);
        for (size_t at = 0; (at = quoted.find('"', at)) != quoted.npos; at += 2) {
            quoted.insert(at, 1, '"');
        }
        text += "\"" + quoted + "\"\r\n";
    }
    ASSERT_GT(text.size(), 1u << 20);
    const std::string path = WriteText(folder, "t.csv", text);
    for (const double test : {0.0, 0.3}) {
        const RecordFile file = Must(RecordFile::Open(path, {.test = test, .seed = 1}));
        ASSERT_EQ(file.size(Part::kTrain) + file.size(Part::kTest), static_cast<uint64_t>(kRows));
        if (test > 0) continue;
        std::string buffer;
        for (int i = 0; i < kRows; ++i) {
            const auto fields = Must(
                ParseRow(Must(file.Read(Part::kTrain, static_cast<uint64_t>(i), buffer)), ','));
            ASSERT_EQ(fields, std::vector<std::string>{row(i)});
        }
        EXPECT_TRUE(file.Where(Part::kTrain, 2).ends_with("t.csv: line 6"));
    }
}

TEST(DataForms, PlainText) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|";
    const auto marked = [&](const std::string& name, const std::string& text) {
        return FileMarked({WriteText(folder, name, text)});
    };
    EXPECT_EQ(marked("t.txt", "one\ntwo\n\n\n three, and\r\n four.\r\n \r\nfive"),
              "[one\ntwo" + e + "[three, and\r\n four." + e + "[five" + e);
    EXPECT_EQ(marked("t.txt", "one\ntwo\nthree\n"), "[one" + e + "[two" + e + "[three" + e);
    EXPECT_EQ(marked("t.txt", "[1] A note.\n\n{x} Another."),
              "[[1] A note." + e + "[{x} Another." + e);
    EXPECT_EQ(marked("t.md", "# Title\n\nText.\n"), "[# Title" + e + "[Text." + e);
    EXPECT_EQ(marked("prose", "Once, upon\na time."), "[Once, upon" + e + "[a time." + e);
    // Records in a file with another extension.
    EXPECT_EQ(marked("t.txt", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"), "[a" + e + "[b" + e);
    EXPECT_EQ(marked("t.txt", "[{\"text\": \"a\"},\n{\"text\": \"b\"}]\n"), "[a" + e + "[b" + e);
    for (const std::string& bytes : {std::string("ab\0cd", 5), std::string("caf\xE9 au lait")}) {
        EXPECT_NE(marked("t.txt", bytes).find("neither JSON nor text in UTF-8"), std::string::npos);
    }
    // A .jsonl file is read as JSON, whatever it holds.
    EXPECT_NE(marked("t.jsonl", "hello\n").find("t.jsonl: line 1: not valid JSON"),
              std::string::npos);
}

// A stray blank line between records does not make the file two paragraphs.
TEST(DataForms, StrayBlankLinesDoNotMakeParagraphs) {
    const TempDir folder;
    const auto records = [&](const std::string& text) {
        const RecordFile file = Must(RecordFile::Open(WriteText(folder, "t.txt", text)));
        return std::pair(file.size(Part::kTrain), file.paragraphs());
    };
    const auto lines = [](int count, const std::string& end = "\n") {
        std::string text;
        for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + end;
        return text;
    };
    EXPECT_EQ(records(lines(500) + "\n" + lines(500)), std::pair(uint64_t{1000}, false));
    EXPECT_EQ(records(lines(500, "\r\n") + " \r\n\r\n\r\n\r\n" + lines(500, "\r\n")),
              std::pair(uint64_t{1000}, false));
    EXPECT_EQ(records(lines(90, "\r") + "\r" + lines(11, "\r")), std::pair(uint64_t{101}, false));
    EXPECT_EQ(records("\n\n" + lines(500) + "\n\n"), std::pair(uint64_t{500}, false));
    // A gap per 50 lines.
    EXPECT_EQ(records(lines(25) + "\n" + lines(25)), std::pair(uint64_t{2}, true));
    EXPECT_EQ(records(lines(25) + "\n" + lines(26)), std::pair(uint64_t{51}, false));
    EXPECT_EQ(records(lines(40) + "\n" + lines(40) + "\n" + lines(20)),
              std::pair(uint64_t{3}, true));
    const auto data = Must(DataSet::Open({.specs = {folder / "t.txt"}}, ByteEncoder()));
    EXPECT_TRUE(data->Chooses());
    EXPECT_EQ(data->Summary(),
              "1 file, 3 records: " + (folder / "t.txt") + " (text, a record per paragraph)");
}

// `text` compressed by libarchive's filter.
std::string Packed(const TempDir& folder, const std::string& name, const std::string& text,
                   int (*filter)(struct archive*)) {
    const std::string path = folder / name;
    struct archive* out = ::archive_write_new();
    EXPECT_EQ(filter(out), ARCHIVE_OK);
    ::archive_write_set_format_raw(out);
    EXPECT_EQ(::archive_write_open_filename(out, path.c_str()), ARCHIVE_OK);
    struct archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_filetype(entry, AE_IFREG);
    ::archive_write_header(out, entry);
    EXPECT_EQ(::archive_write_data(out, text.data(), text.size()),
              static_cast<la_ssize_t>(text.size()));
    ::archive_entry_free(entry);
    ::archive_write_free(out);
    return path;
}

// Bytes before and after the packed data: skippable frames, and trailing garbage.
TEST(DataForms, CompressedBesideOtherBytes) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|";
    const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", both = "[a" + e + "[b" + e;
    for (const auto filter : {&::archive_write_add_filter_zstd, &::archive_write_add_filter_xz,
                              &::archive_write_add_filter_bzip2}) {
        const std::string whole = Must(ReadTextFile(Packed(folder, "d.x", lines, filter)));
        EXPECT_NE(FileMarked({WriteText(folder, "more", whole + "some junk")})
                      .find("more: it can't be unpacked"),
                  std::string::npos);
    }
    // pzstd begins each part with a skippable frame.
    const std::string part =
        Must(ReadTextFile(Packed(folder, "d.zst", lines, &::archive_write_add_filter_zstd)));
    for (const char first : {'\x50', '\x5f'}) {
        const std::string skipped = first + std::string("\x2a\x4d\x18\4\0\0\0size", 11);
        for (const std::string& whole : {skipped + part, skipped + skipped + part}) {
            EXPECT_EQ(FileMarked({WriteText(folder, "skip.zst", whole)}), both);
        }
        EXPECT_EQ(FileMarked({WriteText(folder, "skip.zst", skipped + part + skipped + part)}),
                  both + both);
        EXPECT_NE(FileMarked({WriteText(folder, "skip", skipped.substr(0, 9))}).find("error"),
                  std::string::npos);
    }
}

TEST(DataForms, Compressed) {
    const TempDir folder, unpacked;
    ::setenv("TMPDIR", (unpacked / "").c_str(), 1);
    const std::string e = "<|endoftext|>]|";
    const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", both = "[a" + e + "[b" + e;
    const auto gzip = &::archive_write_add_filter_gzip;
    EXPECT_EQ(FileMarked({Packed(folder, "d.jsonl.gz", lines, gzip)}), both);
    EXPECT_EQ(FileMarked({Packed(folder, "d", lines, gzip)}), both);
    EXPECT_EQ(FileMarked({Packed(folder, "d.csv.gz", "text\na\nb\n", gzip)}), both);
    EXPECT_EQ(FileMarked({Packed(folder, "d.TXT.gz", "a\nb\n", gzip)}), both);
    EXPECT_EQ(
        FileMarked({Packed(folder, "d.json.gz", "[{\"text\": \"a\"}, {\"text\": \"b\"}]", gzip)}),
        both);
    for (const auto filter : {&::archive_write_add_filter_zstd, &::archive_write_add_filter_xz,
                              &::archive_write_add_filter_bzip2}) {
        EXPECT_EQ(FileMarked({Packed(folder, "d.jsonl.x", lines, filter)}), both);
    }
    // Identified by its content: a checkpoint continues with the unpacked file.
    {
        const auto packed = Must(RecordFile::Open(Packed(folder, "d.jsonl.gz", lines, gzip)));
        const auto plain = Must(RecordFile::Open(WriteText(folder, "d.jsonl", lines)));
        EXPECT_EQ(packed.checksum(), plain.checksum());
        EXPECT_EQ(packed.size_bytes(), plain.size_bytes());
        EXPECT_TRUE(packed.Where(Part::kTrain, 1).ends_with("d.jsonl.gz: line 2"));
    }
    // Two concatenated files are two members of one archive.
    const std::string one = Must(ReadTextFile(folder / "d.jsonl.gz"));
    EXPECT_EQ(FileMarked({WriteText(folder, "two.jsonl.gz", one + one)}), both + both);
    // Truncated or damaged. (zstd, xz and bzip2 have checksums of their own.)
    for (const auto filter : {gzip, &::archive_write_add_filter_zstd,
                              &::archive_write_add_filter_xz, &::archive_write_add_filter_bzip2}) {
        const std::string whole = Must(ReadTextFile(Packed(folder, "d.x", lines, filter)));
        for (const size_t size :
             {size_t{7}, whole.size() / 2, whole.size() - 9, whole.size() - 1}) {
            const std::string said = FileMarked({WriteText(folder, "cut", whole.substr(0, size))});
            EXPECT_NE(said.find("cut: it can't be unpacked"), std::string::npos) << size << said;
        }
    }
    for (size_t i = 1; i <= 8; ++i) {  // the checksum and the length
        std::string wrong = one;
        wrong[wrong.size() - i] ^= 1;
        const std::string said = FileMarked({WriteText(folder, "wrong.gz", wrong)});
        EXPECT_NE(said.find(i <= 4 ? "incorrect length" : "incorrect data"), said.npos) << said;
        EXPECT_NE(said.find("wrong.gz"), std::string::npos) << said;
    }
    EXPECT_EQ(FileMarked({WriteText(folder, "padded.gz", one + std::string(700, '\0'))}), both);
    EXPECT_NE(FileMarked({WriteText(folder, "more.gz", one + "junk")}).find("incorrect header"),
              std::string::npos);
    EXPECT_NE(FileMarked({Packed(folder, "none.gz", "", gzip)}).find("no records"),
              std::string::npos);
    // Highly compressed: no more memory than for a small file.
    const std::string line = "{\"text\": \"" + std::string(1000, 'x') + "\"}\n";
    std::string many;
    while (many.size() < (32u << 20)) many += line;
    const std::string bomb = Packed(folder, "bomb.jsonl.gz", many, gzip);
    EXPECT_LT(std::filesystem::file_size(bomb), many.size() / 100);
    EXPECT_EQ(Must(RecordFile::Open(bomb)).size(Part::kTrain), many.size() / line.size());
    EXPECT_TRUE(std::filesystem::is_empty(unpacked / "")) << "what was unpacked is gone";
    ::setenv("TMPDIR", (unpacked / "none").c_str(), 1);
    EXPECT_NE(FileMarked({bomb}).find("Set TMPDIR to another folder"), std::string::npos);
    ::unsetenv("TMPDIR");
}

// The processes of a host share one unpacked file, whichever of them ends first, and a file that a
// killed process left is written again.
TEST(DataForms, UnpackedFilesAreShared) {
    const TempDir folder, unpacked;
    ::setenv("TMPDIR", (unpacked / "").c_str(), 1);
    const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
    const std::string packed =
        Packed(folder, "d.jsonl.gz", lines, &::archive_write_add_filter_gzip);
    const auto files = [&] {
        std::vector<std::filesystem::path> all;
        for (const auto& each : std::filesystem::recursive_directory_iterator(unpacked / "")) {
            if (each.is_regular_file()) all.push_back(each.path());
        }
        return all;
    };
    const auto read = [](const RecordFile& file) {
        std::string buffer;
        return std::string(Must(file.Read(Part::kTrain, 1, buffer)));
    };
    auto first = std::make_unique<RecordFile>(Must(RecordFile::Open(packed)));
    ASSERT_EQ(files().size(), 1u);
    std::vector<std::future<std::string>> others;
    for (int i = 0; i < 4; ++i) {
        others.push_back(std::async(std::launch::async, [&] {
            const RecordFile other = Must(RecordFile::Open(packed));
            EXPECT_EQ(files().size(), 1u);
            return read(other);
        }));
    }
    for (auto& other : others) EXPECT_EQ(other.get(), "{\"text\": \"b\"}");
    const std::filesystem::path left = files()[0];
    first.reset();
    EXPECT_TRUE(std::filesystem::is_empty(unpacked / ""));
    // Without a lock, nobody uses the file: it may be half of one.
    std::filesystem::create_directory(left.parent_path());
    std::filesystem::permissions(left.parent_path(), std::filesystem::perms(0700));
    for (const std::filesystem::path& name : {left, left.parent_path() / "other"}) {
        std::ofstream(name) << "{\"text\": \"half";
        std::filesystem::permissions(name, std::filesystem::perms(0400));
    }
    const RecordFile again = Must(RecordFile::Open(packed));
    EXPECT_EQ(read(again), "{\"text\": \"b\"}");
    EXPECT_EQ(files(), std::vector{left});
    // Another user's folder is refused.
    std::filesystem::permissions(left.parent_path(), std::filesystem::perms(0777));
    EXPECT_NE(FileMarked({packed}).find("other users may write there"), std::string::npos);
    ::unsetenv("TMPDIR");
}

TEST(DataForms, SeveralFilesAndFolders) {
    const TempDir folder;
    const std::string e = "<|endoftext|>]|";
    std::filesystem::create_directories(folder / "data/more");
    std::filesystem::create_directories(folder / "data/.cache");
    const std::string a =
        WriteText(folder, "data/a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    const std::string b = WriteText(folder, "data/b.csv", "text\nc\n");
    const std::string c = WriteText(folder, "data/more/c.txt", "d\n");
    WriteText(folder, "data/README.md", "No data.");
    WriteText(folder, "data/dataset_info.json", "{}");
    WriteText(folder, "data/.hidden.jsonl", "{}");
    WriteText(folder, "data/.cache/x.jsonl", "{}");
    const std::string all = "[a" + e + "[b" + e + "[c" + e + "[d" + e;
    EXPECT_EQ(FileMarked({folder / "data"}), all);
    EXPECT_EQ(FileMarked({a, b, c}), all);
    EXPECT_EQ(FileMarked({b, a}), "[c" + e + "[a" + e + "[b" + e);
    EXPECT_EQ(Must(DataFiles({folder / "data", a})).files, (std::vector<std::string>{a, b, c, a}));
    // Line numbers count per file; a list of one file equals the file.
    WriteText(folder, "data/b.csv", "text,n\nc,1\nd,2,3\n");
    EXPECT_NE(FileMarked({folder / "data"}).find("data/b.csv: line 3: 3 fields"),
              std::string::npos);
    const auto one = Must(DataSet::Open({.specs = {a}}, ByteEncoder()));
    EXPECT_EQ(one->content().checksum, Must(RecordFile::Open(a)).checksum());
    EXPECT_NE(Must(DataSet::Open({.specs = {a, c}}, ByteEncoder()))->content().checksum,
              Must(DataSet::Open({.specs = {c, a}}, ByteEncoder()))->content().checksum);
    WriteText(folder, "data/z.parquet", "PAR1");
    EXPECT_NE(FileMarked({folder / "data"}).find("z.parquet: it can't be read as a Parquet file"),
              std::string::npos);
    std::filesystem::create_directories(folder / "empty");
    EXPECT_NE(FileMarked({folder / "empty"}).find("no file in this folder ends in .json"),
              std::string::npos);
    EXPECT_NE(FileMarked({a, folder / "none.jsonl"}).find("none.jsonl"), std::string::npos);
    EXPECT_NE(FileMarked({a, "synthetic:random-tokens"}).find("synthetic:random-tokens"),
              std::string::npos);
}

// These forms have a header even without records, so a file of 0 bytes is an incomplete download.
TEST(DataForms, EmptyFilesOfFormsWithHeadersAreErrors) {
    for (const std::string name : {"x.parquet", "x.arrow", "x.jsonl.gz", "x.csv.zst", "x.txt.xz",
                                   "x.json.bz2", "X.PARQUET"}) {
        const TempDir folder;
        std::filesystem::create_directories(folder / "data");
        WriteText(folder, "data/a.jsonl", "{\"text\": \"a\"}\n");
        WriteText(folder, "data/" + name, "");
        const std::string error = FileMarked({folder / "data"});
        EXPECT_NE(error.find(name + ": it has 0 bytes"), std::string::npos) << error;
    }
}

TEST(DataForms, PartsWithoutRecordsAreNoError) {
    const TempDir folder;
    std::filesystem::create_directories(folder / "data");
    const std::string empty = WriteText(folder, "data/part-0.jsonl", "");
    WriteText(folder, "data/part-1.json", "[]");
    WriteText(folder, "data/part-2.csv", "text\n");
    EXPECT_NE(FileMarked({folder / "data"}).find("data: no records in 7 bytes"), std::string::npos)
        << FileMarked({folder / "data"});
    const std::string full = WriteText(folder, "data/part-3.jsonl", "{\"text\": \"a\"}\n");
    EXPECT_EQ(FileMarked({folder / "data"}), "[a<|endoftext|>]|");
    const auto data = Must(DataSet::Open({.specs = {folder / "data"}}, ByteEncoder()));
    EXPECT_TRUE(data->Summary().starts_with("4 files (3 without records), 1 record: "))
        << data->Summary();
    const std::string error = FileMarked({full, empty});
    EXPECT_NE(error.find("part-0.jsonl: no records in 0 bytes"), std::string::npos) << error;
    for (const char* text : {"", "\n \n\n", "[]", "{\n}"}) {
        const std::string said = FileMarked({WriteText(folder, "data.json", text)});
        EXPECT_NE(said.find("data.json: no records in"), std::string::npos) << text << said;
    }
}

// As the package datasets assigns files to splits.
TEST(DataForms, FilesOfOtherSplitsAreLeftOut) {
    const TempDir folder;
    const auto add = [&](const std::string& name) {
        const std::filesystem::path path = folder / name;
        std::filesystem::create_directories(path.parent_path());
        return WriteText(folder, name, "{\"text\": \"a\"}\n");
    };
    const std::string extra = add("test/d/EXTRA.JSONL"), test = add("test/d/test-00000.jsonl");
    const std::string contest = add("test/d/contest.jsonl");
    const std::string d = folder / "test/d";
    // No name has the training split.
    EXPECT_EQ(Must(DataFiles({d})).files, (std::vector<std::string>{extra, contest}));
    EXPECT_EQ(Must(DataFiles({d})).left_out, std::vector<std::string>{test});
    const std::string train = add("test/d/Train-00000.jsonl");
    const std::string valid = add("test/d/more/validation/x.jsonl");
    const std::string both = add("test/d/more/train_dev.jsonl");
    const std::string val = add("test/d/val1.json"), eval = add("test/d/my.eval.ndjson");
    const DataFileList list = Must(DataFiles({d}));
    EXPECT_EQ(list.files, (std::vector<std::string>{extra, train, contest, both}));
    EXPECT_EQ(list.left_out, (std::vector<std::string>{valid, eval, test, val}));
    // Named files are read.
    EXPECT_EQ(Must(DataFiles({train, test})).files, (std::vector<std::string>{train, test}));
    const auto data = Must(DataSet::Open({.specs = {d}}, ByteEncoder()));
    EXPECT_EQ(data->Summary(),
              "4 files, 4 records: " + extra + " (JSON lines), " + train + " (JSON lines), " +
                  contest + " (JSON lines), 1 more; left out, as files of another split than the " +
                  "training split: " + valid + ", " + eval + ", " + test +
                  ", 1 more. To train on them, name the files");
    EXPECT_TRUE(data->Chooses());
    const auto named = Must(DataSet::Open({.specs = {test}}, ByteEncoder()));
    EXPECT_EQ(named->Summary(), "1 file, 1 record: " + test + " (JSON lines)");
    EXPECT_FALSE(named->Chooses());
}

// Omitted files do not count toward the limit: the training files after them are read, too.
TEST(DataForms, AllTrainingFilesOfManyFolders) {
    const TempDir folder;
    std::vector<std::string> wanted;
    for (int i = 0; i < 200; ++i) {
        const std::string language = fmt::format("{:03}", i);
        std::filesystem::create_directories(folder / language);
        for (const char* split : {"train", "dev", "test"}) {
            const std::string name = language + "/" + split + ".jsonl";
            WriteText(folder, name, "{\"text\": \"" + name + "\"}\n");
        }
        wanted.push_back(folder / (language + "/train.jsonl"));
    }
    const DataFileList list = Must(DataFiles({folder.path()}));
    EXPECT_EQ(list.files, wanted);
    EXPECT_EQ(list.left_out.size(), 400u);
}

TEST(DataForms, ManyFilesRaiseTheLimitOfDescriptors) {
    const TempDir folder;
    for (int i = 0; i < 200; ++i) {
        Packed(folder, fmt::format("{:03}.jsonl.gz", i), "{\"text\": \"a\"}\n",
               ::archive_write_add_filter_gzip);
    }
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
    rlimit low = old;
    low.rlim_cur = 128;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    const auto data = DataSet::Open({.specs = {folder.path()}}, ByteEncoder());
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
    ASSERT_TRUE(data.ok()) << data.error().message;
    EXPECT_EQ((*data)->size(Part::kTrain), 200u);
}

TEST(DataForms, ValidationFilesAreNoTrainingData) {
    for (const char* name :
         {"validation.jsonl", "valid.jsonl", "val.jsonl", "dev.jsonl", "chat_eval.jsonl",
          "test.csv", "testset.jsonl", "holdout/a.jsonl", "held-out.jsonl", "held_out.jsonl",
          "hold.out.jsonl", "evals.jsonl", "Tests/x.jsonl", "chatTest.jsonl", "QATest.jsonl",
          "TESTS.csv", "train_eval_split/eval.jsonl", "train/validation.jsonl"}) {
        const TempDir folder;
        for (const char* inner : {"holdout", "Tests", "train_eval_split", "train"}) {
            std::filesystem::create_directories(folder / inner);
        }
        const std::string other = WriteText(folder, name, "{\"text\": \"a\"}\n");
        // If there is nothing else, the folder is about these files.
        EXPECT_EQ(Must(DataFiles({folder.path()})).files, std::vector<std::string>{other});
        const std::string chat = WriteText(folder, "chat.jsonl", "{\"text\": \"a\"}\n");
        const DataFileList list = Must(DataFiles({folder.path()}));
        EXPECT_EQ(list.files, std::vector<std::string>{chat}) << name;
        EXPECT_EQ(list.left_out, std::vector<std::string>{other}) << name;
    }
}

TEST(DataForms, OtherNamesAreTrainingData) {
    const TempDir folder;
    std::filesystem::create_directories(folder / "train");
    std::filesystem::create_directories(folder / "test");
    std::vector<std::string> wanted;
    for (const char* name : {"contest.jsonl", "latest.jsonl", "heldall.jsonl", "Attest.jsonl",
                             "train/a.jsonl", "test/train.jsonl", "trainEval.jsonl"}) {
        wanted.push_back(WriteText(folder, name, "{\"text\": \"a\"}\n"));
    }
    EXPECT_TRUE(std::ranges::is_permutation(Must(DataFiles({folder.path()})).files, wanted));
}

TEST(DataForms, TextsAboutTheDataAreSkipped) {
    const TempDir folder;
    const std::string names[] = {"Readme_data.json", "licensed.txt", "license.jsonl", "x.TXT"};
    for (const char* name : {"LICENSE.txt", "License-MIT.TXT", "README.txt", "requirements.txt",
                             "requirements-dev.txt", "Dataset_Info.json"}) {
        WriteText(folder, name, "no data\n");
    }
    std::vector<std::string> wanted;
    for (const std::string& name : names) {
        wanted.push_back(WriteText(folder, name, "{\"text\": \"a\"}\n"));
    }
    EXPECT_EQ(Must(DataFiles({folder / ""})).files.size(), 4u);
    EXPECT_TRUE(std::ranges::is_permutation(Must(DataFiles({folder.path()})).files, wanted));
    WriteText(folder, "Z.PARQUET", "PAR1");
    EXPECT_EQ(Must(DataFiles({folder.path()})).files.size(), 5u);
}

TEST(DataForms, LinksToFoldersAreFollowedOnce) {
    const TempDir folder, other;
    std::filesystem::create_directories(folder / "d/z");
    WriteText(folder, "d/z/a.jsonl", "{\"text\": \"a\"}\n");
    WriteText(other, "b.jsonl", "{\"text\": \"b\"}\n");
    std::filesystem::create_directory_symlink(folder / "d", folder / "d/z/again");
    std::filesystem::create_directory_symlink("z", folder / "d/a");
    std::filesystem::create_directory_symlink(other.path(), folder / "d/linked");
    EXPECT_EQ(Must(DataFiles({folder / "d"})).files,
              (std::vector<std::string>{folder / "d/linked/b.jsonl", folder / "d/z/a.jsonl"}));
    std::filesystem::create_symlink("nothing", folder / "d/c.jsonl");
    const auto dangling = DataFiles({folder / "d"});
    ASSERT_FALSE(dangling.ok());
    EXPECT_NE(dangling.error().message.find("c.jsonl: the file behind this link does not exist"),
              std::string::npos);
}

}  // namespace
}  // namespace weft::train
