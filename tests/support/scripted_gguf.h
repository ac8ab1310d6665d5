// A model that answers every prompt with the same text, for tests of answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "model_files/gguf_writer.h"
#include "model_files/write_tokenizer.h"
#include "support/tiny_vocabulary.h"

namespace weft::support {

// A piece of the answer: one token. control: a control token, which answers show only on request.
struct ScriptPiece {
    std::string text;
    bool control = false;
};

// Writes a model of one layer that adds nothing. Embeddings are unit vectors, so the output matrix
// alone defines which token follows which. The pieces, all different, follow each other. The first
// piece follows any other token; the end token follows the last piece.
inline void WriteScriptedGguf(const std::string& path, const std::string& chat_template,
                              const std::vector<ScriptPiece>& script) {
    // (A file must have merges.)
    tokenizer::TokenizerData words = tokenizer::TinyBytePair({"Q Q"});
    const size_t first = words.tokens.size();
    for (const ScriptPiece& piece : script) {
        words.tokens.push_back(piece.text);
        words.types.push_back(static_cast<int32_t>(
            piece.control ? tokenizer::TokenType::kControl : tokenizer::TokenType::kUserDefined));
    }
    const size_t vocab = words.tokens.size(), hidden = (vocab + 31) / 32 * 32;
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    const std::pair<const char*, size_t> keys[] = {
        {"block_count", 1},           {"context_length", 2048},
        {"embedding_length", hidden}, {"feed_forward_length", 32},
        {"attention.head_count", 1},  {"attention.head_count_kv", 1},
        {"attention.key_length", 32}, {"attention.value_length", 32},
        {"rope.dimension_count", 32}};
    for (const auto& [key, value] : keys) {
        writer.U32(std::string("llama.") + key, static_cast<uint32_t>(value));
    }
    writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    model_files::WriteTokenizer(words, writer);
    writer.String("tokenizer.chat_template", chat_template);
    const auto add = [&](const std::string& name, size_t cols, size_t rows,
                         std::vector<float> data = {}) {
        data.resize(cols * rows);
        const auto bytes = std::as_bytes(std::span(data));
        const int64_t dims[] = {static_cast<int64_t>(cols), static_cast<int64_t>(rows)};
        writer.Tensor(name, DType::kF32, std::span(dims, rows > 1 ? 2 : 1),
                      {bytes.begin(), bytes.end()});
    };
    std::vector<float> embeddings(hidden * vocab), output(hidden * vocab);
    for (size_t token = 0; token < vocab; ++token) {
        embeddings[token * hidden + token] = 1;
        size_t next = token < first ? first : token + 1;
        if (next == vocab) next = static_cast<size_t>(words.eos);
        output[next * hidden + token] = 1;
    }
    const std::vector<float> ones(hidden, 1.0f);
    add("token_embd.weight", hidden, vocab, embeddings);
    add("output_norm.weight", hidden, 1, ones);
    add("output.weight", hidden, vocab, output);
    add("blk.0.attn_norm.weight", hidden, 1, ones);
    add("blk.0.ffn_norm.weight", hidden, 1, ones);
    for (const char* name : {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"}) {
        add(std::string("blk.0.") + name + ".weight", hidden, 32);
    }
    for (const char* name : {"attn_output", "ffn_down"}) {
        add(std::string("blk.0.") + name + ".weight", 32, hidden);
    }
    WEFT_CHECK(WriteFile(path, writer.File()).ok());
}

}  // namespace weft::support
