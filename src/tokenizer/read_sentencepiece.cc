#include "tokenizer/read_sentencepiece.h"

#include <bit>
#include <cmath>

#include "base/byte_codec.h"
#include "tokenizer/parts.h"
#include "tokenizer/pipeline.h"

namespace weft::tokenizer {
namespace {

// Iterates over the fields of a protobuf message.
class Message {
  public:
    explicit Message(std::string_view bytes) : reader_(bytes) {}

    struct Field {
        uint64_t number = 0;
        uint64_t value = 0;      // of a varint or a fixed-size field
        std::string_view bytes;  // of a length-delimited field
    };
    // False at the end, or on invalid bytes; then failed() is true.
    bool Next(Field& field) {
        if (reader_.left() == 0) return false;
        const uint64_t tag = Varint();
        field = {tag >> 3, 0, {}};
        switch (tag & 7) {
            case 0: field.value = Varint(); break;
            case 1: field.value = reader_.Take<uint64_t>(); break;
            case 2: field.bytes = reader_.RawText(Varint()); break;
            case 5: field.value = reader_.Take<uint32_t>(); break;
            default: reader_.Fail("has an unknown wire type");
        }
        return reader_.ok();
    }
    bool failed() const { return !reader_.ok(); }

  private:
    uint64_t Varint() {
        uint64_t value = 0;
        for (int shift = 0; shift < 64 && reader_.ok(); shift += 7) {
            const auto byte = reader_.Take<uint8_t>();
            value |= uint64_t{byte & 0x7Fu} << shift;
            if (byte < 0x80) return value;
        }
        reader_.Fail("has a varint that is too long");
        return 0;
    }

    ByteReader reader_;
};

struct Model {
    TokenizerData data;
    uint64_t type = 1;  // default: Unigram
    bool byte_fallback = false;
    int64_t unk = 0, bos = 1, eos = 2, pad = -1;
    SentencePieceRules rules;
    std::string_view charsmap;
};

Error Broken(std::string_view what) {
    return MakeError(ErrorCode::kCorrupt,
                     "{} is not a SentencePiece protobuf message. Was the file cut short?", what);
}

Status ReadPiece(std::string_view bytes, Model& model) {
    Message message(bytes);
    Message::Field field;
    std::string_view text;
    float score = 0;
    uint64_t type = 1;
    while (message.Next(field)) {
        if (field.number == 1) text = field.bytes;
        if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
        if (field.number == 3) type = field.value;
    }
    if (message.failed()) return Broken(fmt::format("piece {}", model.data.tokens.size()));
    model.data.tokens.emplace_back(text);
    model.data.scores.push_back(score);
    model.data.types.push_back(type <= 6 ? static_cast<int32_t>(type) : 0);
    return {};
}

Status ReadTrainer(std::string_view bytes, Model& model) {
    Message message(bytes);
    Message::Field field;
    const auto id = [&] { return static_cast<int64_t>(field.value); };
    while (message.Next(field)) {
        if (field.number == 3) model.type = field.value;
        if (field.number == 24) model.rules.suffix = field.value != 0;
        if (field.number == 35) model.byte_fallback = field.value != 0;
        if (field.number == 40) model.unk = id();
        if (field.number == 41) model.bos = id();
        if (field.number == 42) model.eos = id();
        if (field.number == 43) model.pad = id();
    }
    if (message.failed()) return Broken("trainer_spec");
    return {};
}

Status ReadNormalizerSpec(std::string_view bytes, Model& model) {
    Message message(bytes);
    Message::Field field;
    while (message.Next(field)) {
        if (field.number == 2) model.charsmap = field.bytes;
        if (field.number == 3) model.rules.add_dummy_prefix = field.value != 0;
        if (field.number == 4) model.rules.remove_extra_spaces = field.value != 0;
        if (field.number == 5) model.rules.escape_spaces = field.value != 0;
    }
    if (message.failed()) return Broken("normalizer_spec");
    return {};
}

Result<Model> ReadModel(std::string_view bytes) {
    Model model;
    model.data.model = "sentencepiece";
    Message message(bytes);
    Message::Field field;
    while (message.Next(field)) {
        if (field.number == 1) WEFT_TRY(ReadPiece(field.bytes, model));
        if (field.number == 2) WEFT_TRY(ReadTrainer(field.bytes, model));
        if (field.number == 3) WEFT_TRY(ReadNormalizerSpec(field.bytes, model));
        if (model.data.tokens.size() >= static_cast<size_t>(kMostTokens)) {
            return Broken("the file, which has too many pieces,");
        }
    }
    if (message.failed() || model.data.tokens.empty()) return Broken("the file");
    WEFT_ASSIGN(model.rules.charsmap, Charsmap::Read(model.charsmap));
    if (model.type == 1 || model.type == 2) return model;
    return MakeError(
        ErrorCode::kUnsupported,
        "SentencePiece model type {} is not supported; supported: 1 (Unigram), 2 (BPE)",
        model.type);
}

void SetIds(const TokenizerHints& hints, Model& model) {
    TokenizerData& data = model.data;
    const auto count = static_cast<int64_t>(data.tokens.size());
    const auto fitting = [&](int64_t id) {
        return id >= 0 && id < count ? static_cast<int32_t>(id) : -1;
    };
    data.unk = fitting(model.unk);
    data.bos = fitting(model.bos);
    data.eos = fitting(model.eos);
    data.pad = fitting(model.pad);
    for (size_t id = 0; id < data.types.size(); ++id) {
        if (data.types[id] == static_cast<int32_t>(TokenType::kUnknown)) {
            data.unk = static_cast<int32_t>(id);
        }
    }
    data.add_space_prefix = model.rules.add_dummy_prefix && !model.rules.suffix;
    const bool t5 = hints.tokenizer_class.starts_with("T5");
    data.add_bos = data.bos >= 0 && hints.add_bos.value_or(model.type == 2 && !t5);
    data.add_eos = data.eos >= 0 && hints.add_eos.value_or(t5);
}

// Adds the folder's added tokens to the model's tokens.
Status AddTokens(const TokenizerHints& hints, Model& model) {
    TokenizerData& data = model.data;
    for (const AddedToken& token : hints.added) {
        AddFlags(token, data);
        const auto at = static_cast<size_t>(token.id);
        if (at > data.tokens.size() + 65536) {
            return MakeError(ErrorCode::kCorrupt,
                             "added token '{}' has the id {}, but there are only {} tokens",
                             token.text.substr(0, 80), token.id, data.tokens.size());
        }
        if (at < data.tokens.size() && data.tokens[at] == token.text) {
            const bool normal = data.types[at] == static_cast<int32_t>(TokenType::kNormal);
            if (normal && token.special) data.types[at] = static_cast<int32_t>(TokenType::kControl);
            continue;
        }
        if (at >= data.tokens.size()) {
            data.tokens.resize(at + 1);
            data.scores.resize(at + 1);
            data.types.resize(at + 1, static_cast<int32_t>(TokenType::kUnused));
        }
        data.tokens[at] = token.text;
        data.types[at] =
            static_cast<int32_t>(token.special ? TokenType::kControl : TokenType::kUserDefined);
    }
    return {};
}

// SentencePiece's encoding of a text. Owns the objects that its normalizer refers to.
class SentencePieceModel : public TokenModel {
  public:
    SentencePieceModel(std::unique_ptr<const SpecialScanner> kept, PipelineParts parts)
        : kept_(std::move(kept)), pipeline_(MakePipeline(std::move(parts))) {}
    void Encode(std::string_view text, bool first, std::vector<int32_t>& ids) const override {
        pipeline_->Encode(text, first, ids);
    }
    std::string Bytes(std::string_view text) const override { return pipeline_->Bytes(text); }

  private:
    std::unique_ptr<const SpecialScanner> kept_;
    std::unique_ptr<const TokenModel> pipeline_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> ReadSentencePiece(std::string_view bytes,
                                                     const TokenizerHints& hints) {
    WEFT_ASSIGN(Model model, ReadModel(bytes));
    SetIds(hints, model);
    WEFT_TRY(AddTokens(hints, model));
    for (const int32_t id : hints.ends) {
        if (static_cast<size_t>(id) < model.data.tokens.size()) model.data.ends.push_back(id);
    }
    TypeMarkers(model.data, false);
    TokenizerParts parts;
    WEFT_ASSIGN(parts.vocabulary, Vocabulary::Make(std::move(model.data)));
    const Vocabulary& vocabulary = *parts.vocabulary;

    auto kept = std::make_unique<const SpecialScanner>(
        SpecialEntries(vocabulary, {TokenType::kUserDefined}));
    model.rules.kept = kept.get();
    PipelineParts pipeline;
    NormalizeSteps steps;
    steps.push_back(SentencePiece(std::move(model.rules)));
    pipeline.normalizer = Normalizer(std::move(steps));
    if (model.type == 1) {
        WEFT_ASSIGN(pipeline.model, MakeSentencePieceUnigram(vocabulary, model.byte_fallback));
    } else {
        WEFT_ASSIGN(pipeline.model, MakeSpmWordModel(vocabulary, model.byte_fallback));
    }
    parts.model = std::make_unique<SentencePieceModel>(std::move(kept), std::move(pipeline));
    parts.on_request = SpecialEntries(vocabulary, {TokenType::kControl, TokenType::kUnknown});
    parts.user_bytes_by_model = true;
    return Tokenizer::Assemble(std::move(parts));
}

}  // namespace weft::tokenizer
