#include "chat/pairs.h"

namespace weft::chat {
namespace {

// https://huggingface.co/Qwen/Qwen3-Reranker-0.6B
constexpr std::string_view kQwen =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    "the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
constexpr std::string_view kInstruction =
    "Given a web search query, retrieve relevant passages that answer the query";

ChatInput InputOf(std::string_view query, std::string_view document, std::string_view prompt) {
    ChatInput input;
    input.add_generation_prompt = false;
    const auto add = [&](const char* role, std::string_view text) {
        input.messages.push_back(OrderedJson{{"role", role}, {"content", std::string(text)}});
    };
    if (!prompt.empty()) add("system", prompt);
    add("query", query);
    add("document", document);
    return input;
}

// Whether the template shows both texts.
bool Shows(const Chat& chat) {
    const auto render = [&](std::string_view query, std::string_view document) {
        const auto text = chat.Render(InputOf(query, document, ""), kProbeLimits);
        return text.ok() ? text->bytes() : std::string();
    };
    const std::string usual = render("ab", "cd");
    return !usual.empty() && render("xy", "cd") != usual && render("ab", "zw") != usual;
}

}  // namespace

Result<PairForm> PairForm::Load(const model_files::Metadata& meta,
                                const tokenizer::Tokenizer& tokenizer, bool answers,
                                bool messages) {
    PairForm form(tokenizer);
    WEFT_ASSIGN(form.slots_, meta.StringOr("tokenizer.chat_template.rerank", ""));
    if (!form.slots_.empty()) return form;
    WEFT_ASSIGN(const std::string source, meta.StringOr("tokenizer.chat_template", ""));
    if (messages && !source.empty()) {
        auto chat = Chat::MakeUnfitted(source, tokenizer);
        if (chat.ok() && Shows(*chat)) {
            form.chat_ = std::move(*chat);
            return form;
        }
    }
    if (!answers || !messages) return form;
    if (tokenizer.Find("<|im_start|>") < 0 || tokenizer.Find("<|im_end|>") < 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "rerank: the chat template shows no messages of the roles 'query' and "
                         "'document', and the vocabulary lacks the markers of Qwen3-Reranker's "
                         "prompt");
    }
    form.slots_ = kQwen;
    return form;
}

std::vector<int32_t> PairForm::Fill(std::string_view query, std::string_view document,
                                    std::string_view instruction) const {
    const std::pair<std::string_view, std::string_view> slots[] = {
        {"{query}", query}, {"{document}", document}, {"{instruction}", instruction}};
    Text text;
    for (size_t at = 0; at < slots_.size();) {
        size_t next = slots_.size();
        const std::pair<std::string_view, std::string_view>* found = nullptr;
        for (const auto& slot : slots) {
            const size_t here = slots_.find(slot.first, at);
            if (here < next) next = here, found = &slot;
        }
        text.Append(std::string_view(slots_).substr(at, next - at), 0);
        if (found == nullptr) break;
        text.Append(found->second, kMessageWords);
        at = next + found->first.size();
    }
    return tokenizer_->Encode(text.view(),
                              {.add_special = false, .parse_special = true, .plain = text.given()});
}

Result<tokenizer::Tokenizer::Pair> PairForm::Encode(std::string_view query,
                                                    std::string_view document,
                                                    std::string_view prompt, int64_t most,
                                                    bool markers) const {
    if (chat_) {
        WEFT_ASSIGN(std::vector<int32_t> ids, chat_->Encode(InputOf(query, document, prompt)));
        const size_t size = ids.size();
        return tokenizer::Tokenizer::Pair{std::move(ids), size};
    }
    if (!slots_.empty()) {
        std::vector<int32_t> ids = Fill(query, document, prompt.empty() ? kInstruction : prompt);
        const size_t size = ids.size();
        return tokenizer::Tokenizer::Pair{std::move(ids), size};
    }
    const auto encode = [&](std::string text) {
        return tokenizer_->Encode(text, {.add_special = false, .parse_special = markers});
    };
    return tokenizer_->EncodePair(encode(std::string(prompt) + std::string(query)),
                                  encode(std::string(document)), most);
}

}  // namespace weft::chat
