#include "train/data/identity.h"

#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "tokenizer/open.h"

namespace weft::train {
namespace {

// Hashes each piece with its length, so borders between pieces matter.
class Sum {
  public:
    void Add(std::string_view text) {
        Number(static_cast<int64_t>(text.size()));
        value_ = Checksum64(std::as_bytes(std::span(text)), value_);
    }
    void Number(int64_t number) {
        value_ = Checksum64(std::as_bytes(std::span(&number, 1)), value_);
    }
    void Numbers(std::span<const int32_t> numbers) {
        Number(static_cast<int64_t>(numbers.size()));
        value_ = Checksum64(std::as_bytes(numbers), value_);
    }
    uint64_t value() const { return value_; }

  private:
    uint64_t value_ = 0;
};

bool IsChat(std::string_view key) {
    return key.starts_with("tokenizer.chat_template");
}

// Covers the tokenizer's source and the resulting tokenizer. (Files beside it that define the begin
// and end tokens count by their effect.)
Result<uint64_t> TokenizerSum(const model_files::ModelSource& source,
                              const tokenizer::Tokenizer& tokenizer) {
    Sum sum;
    if (!source.folder().empty()) {
        WEFT_ASSIGN(const std::string path, tokenizer::FindTokenizerFile(source.folder()));
        auto text = tokenizer::TokenizerJsonOf(source.folder());
        if (!text.ok() && text.error().code == ErrorCode::kNotFound) {
            text = ReadTextFile(path, tokenizer::kMostTokenizerBytes);
        }
        if (!text.ok()) return text.error();
        sum.Add(*text);
    } else {
        for (const model_files::MetaEntry& entry : source.meta().entries()) {
            if (!entry.key.starts_with("tokenizer.") || IsChat(entry.key)) continue;
            sum.Add(entry.key);
            sum.Add({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
        }
    }
    const tokenizer::TokenizerData& data = tokenizer.data();
    for (const std::string& token : data.tokens) sum.Add(token);
    sum.Numbers(data.types);
    for (const int32_t id : {data.bos, data.eos, data.eot, data.eom, data.unk, data.pad}) {
        sum.Number(id);
    }
    sum.Number(data.add_bos);
    for (const auto& ids : {data.ends, data.prefix, data.suffix}) sum.Numbers(ids);
    return sum.value();
}

uint64_t ChatSum(const model_files::ModelSource& source) {
    Sum sum;
    for (const model_files::MetaEntry& entry : source.meta().entries()) {
        if (!IsChat(entry.key)) continue;
        sum.Add(entry.key);
        sum.Add({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
    }
    return sum.value();
}

std::string ContentText(const DataIdentity& identity) {
    const DataContent& content = identity.content;
    return fmt::format("{} records ({} bytes, checksum {:016x})", content.records, content.bytes,
                       content.checksum);
}

}  // namespace

Result<DataIdentity> IdentityOf(const model_files::ModelSource& source, const DatasetOptions& words,
                                const OpenedData& opened) {
    DataIdentity identity;
    identity.name = opened.set->Name();
    identity.content = opened.set->content();
    identity.prompt_type = words.prompt_type;
    identity.test_split = words.test_split;
    identity.control_tokens = words.control_tokens;
    if (opened.tokenizer == nullptr) return identity;
    WEFT_ASSIGN(identity.tokenizer, TokenizerSum(source, *opened.tokenizer));
    if (opened.chat != nullptr) identity.chat = ChatSum(source);
    return identity;
}

nlohmann::json JsonOf(const DataIdentity& identity) {
    const DataContent& content = identity.content;
    return {{"records", content.records},
            {"bytes", content.bytes},
            {"checksum", content.checksum},
            {"tokenizer", identity.tokenizer},
            {"chat", identity.chat},
            {"prompt_type", identity.prompt_type},
            {"test_split", identity.test_split},
            {"control_tokens", identity.control_tokens}};
}

Result<DataIdentity> IdentityFrom(const nlohmann::json& from) {
    DataIdentity identity;
    try {
        from.at("records").get_to(identity.content.records);
        from.at("bytes").get_to(identity.content.bytes);
        from.at("checksum").get_to(identity.content.checksum);
        from.at("tokenizer").get_to(identity.tokenizer);
        from.at("chat").get_to(identity.chat);
        from.at("prompt_type").get_to(identity.prompt_type);
        from.at("test_split").get_to(identity.test_split);
        identity.control_tokens = from.value("control_tokens", identity.control_tokens);
    } catch (const nlohmann::json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "the description of the data is malformed: {}",
                         error.what());
    }
    return identity;
}

std::string DifferenceOf(const DataIdentity& here, const DataIdentity& there,
                         const std::string& here_name, const std::string& there_name) {
    std::vector<std::string> all;
    const DataContent &a = here.content, &b = there.content;
    if (a.records != b.records || a.bytes != b.bytes || a.checksum != b.checksum) {
        all.push_back(fmt::format("{} {}, {} {}", ContentText(here), here_name, ContentText(there),
                                  there_name));
    }
    if (here.prompt_type != there.prompt_type) {
        all.push_back(fmt::format("--prompt-type {} {}, {} {}", here.prompt_type, here_name,
                                  there.prompt_type, there_name));
    }
    if (here.test_split != there.test_split) {
        all.push_back(fmt::format("--test-split {} {}, {} {}", here.test_split, here_name,
                                  there.test_split, there_name));
    }
    if (here.control_tokens != there.control_tokens) {
        all.push_back(fmt::format("--control-tokens {} {}, {} {}", here.control_tokens, here_name,
                                  there.control_tokens, there_name));
    }
    if (here.tokenizer != there.tokenizer) {
        all.push_back(fmt::format("the tokenizer {} is not the one {}", here_name, there_name));
    }
    if (here.chat != there.chat) {
        all.push_back(fmt::format("the chat template {} is not the one {}", here_name, there_name));
    }
    return fmt::format("{}", fmt::join(all, "; "));
}

}  // namespace weft::train
