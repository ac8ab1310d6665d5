// The header that rank 0 sends to ranks without a model file: it decodes to what was packed, and
// any other bytes are refused. tests/cli/feed_test.cc tests the whole program.
#include "engine/rank/weight_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "model/hyper.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

// The number of bytes follows from type and count.
void CheckSound(const model_files::MetaEntry& entry) {
    const size_t each = model_files::MetaTypeBytes(entry.element_type);
    if (each > 0) {
        EXPECT_EQ(entry.bytes.size(), each * entry.count) << entry.key;
        return;
    }
    ASSERT_EQ(entry.element_type, model_files::MetaType::kString);
    size_t at = 0;
    for (uint64_t i = 0; i < entry.count; ++i) {
        uint64_t length = 0;
        ASSERT_LE(at + sizeof length, entry.bytes.size()) << entry.key;
        std::memcpy(&length, entry.bytes.data() + at, sizeof length);
        at += sizeof length;
        ASSERT_LE(length, entry.bytes.size() - at) << entry.key;
        at += length;
    }
    EXPECT_EQ(at, entry.bytes.size()) << entry.key;
}

class FeedHeaders : public testing::Test {
  protected:
    void SetUp() override {
        const std::vector<float> factors(static_cast<size_t>(support::OddHyper().rotary_dim) / 2,
                                         1.5f);
        support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = support::OddHyper(),
                                                    .vectors = {{"rope_freqs.weight", factors}}});
        auto source = model_files::OpenModel(dir_ / "tiny.gguf");
        ASSERT_TRUE(source.ok());
        source_ = std::move(*source);
        auto header = StreamHeader(*source_);
        ASSERT_TRUE(header.ok()) << header.error().message;
        header_ = *header;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    std::string header_;
};

TEST_F(FeedHeaders, SayWhatTheFileSays) {
    auto fed = StreamedSource::Parse(header_);
    ASSERT_TRUE(fed.ok()) << fed.error().message;
    EXPECT_EQ((*fed)->name(), source_->name());
    EXPECT_EQ(*(*fed)->Fingerprint(), *source_->Fingerprint());
    ASSERT_EQ((*fed)->tensors().size(), source_->tensors().size());
    for (const model_files::TensorInfo& tensor : source_->tensors()) {
        const model_files::TensorInfo* other = (*fed)->FindTensor(tensor.name);
        ASSERT_NE(other, nullptr) << tensor.name;
        EXPECT_EQ(other->dtype, tensor.dtype);
        EXPECT_EQ(other->rows, tensor.rows);
        EXPECT_EQ(other->dims, tensor.dims);
        EXPECT_EQ(other->bytes, tensor.bytes);
    }
    EXPECT_EQ((*fed)->FindTensor("no.such.tensor"), nullptr);
    for (const model_files::MetaEntry& entry : source_->meta().entries()) {
        const model_files::MetaEntry* other = (*fed)->meta().Find(entry.key);
        ASSERT_EQ(other == nullptr, entry.key.starts_with("tokenizer.")) << entry.key;
        if (other == nullptr) continue;
        EXPECT_EQ(other->type, entry.type);
        EXPECT_TRUE(std::ranges::equal(other->bytes, entry.bytes)) << entry.key;
    }
    // Made before the ranks have links.
    const auto hyper = model::ReadHyper(**fed);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    EXPECT_EQ(hyper->ropes.all, model::ReadHyper(*source_)->ropes.all);
    // Any other tensor is an error until then.
    const auto rows = (*fed)->ReadFloats(*(*fed)->FindTensor("output_norm.weight"));
    ASSERT_FALSE(rows.ok());
    EXPECT_EQ(rows.error().code, ErrorCode::kUnsupported);
}

// Quantized tensors of a folder get types that GGUF files do not have.
TEST_F(FeedHeaders, TypesMadeAtLoadArrive) {
    for (const DType dtype : {DType::kW4, DType::kW8, DType::kNVFP4}) {
        nlohmann::json header = nlohmann::json::from_cbor(header_);
        nlohmann::json& tensor = header["tensors"][0];
        tensor[1] = std::string(Info(dtype).name);
        tensor[3][0] = 2 * Info(dtype).block_elements;
        const auto cbor = nlohmann::json::to_cbor(header);
        auto fed = StreamedSource::Parse(std::string(cbor.begin(), cbor.end()));
        ASSERT_TRUE(fed.ok()) << fed.error().message;
        EXPECT_EQ((*fed)->tensors()[0].dtype, dtype);
    }
}

TEST_F(FeedHeaders, WhateverElseArrivesIsRefusedOrSound) {
    EXPECT_FALSE(StreamedSource::Parse("").ok());
    int taken = 0;
    std::mt19937 random(7);
    for (int i = 0; i < 20'000; ++i) {
        std::string bytes = header_;
        const int changes = 1 + static_cast<int>(random() % 3);
        for (int c = 0; c < changes; ++c) {
            bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        if (i % 4 == 0) bytes.resize(random() % bytes.size());
        auto fed = StreamedSource::Parse(bytes);
        if (!fed.ok()) {
            EXPECT_EQ(fed.error().code, ErrorCode::kCorrupt);
            continue;
        }
        ++taken;
        for (const model_files::TensorInfo& tensor : (*fed)->tensors()) {
            EXPECT_EQ(tensor.rows, tensor.dims[1] * tensor.dims[2] * tensor.dims[3]);
            EXPECT_EQ(tensor.cols, tensor.dims[0]);
            EXPECT_EQ(tensor.cols % Info(tensor.dtype).block_elements, 0);
        }
        for (const model_files::MetaEntry& entry : (*fed)->meta().entries()) CheckSound(entry);
    }
    EXPECT_GT(taken, 100) << "hardly any change was taken: nothing was tested";
}

// Another rank's request is checked before it sizes or reads anything.
TEST_F(FeedHeaders, RequestsOutsideOfATensorEndTheJob) {
    const model_files::TensorInfo& tensor = source_->tensors()[0];
    const int64_t bad[][5] = {
        {-2, 0, 1, 0, tensor.cols},          {int64_t{1} << 40, 0, 1, 0, tensor.cols},
        {0, tensor.rows, 1, 0, tensor.cols}, {0, -1, 1, 0, tensor.cols},
        {0, 0, 0, 0, tensor.cols},           {0, 1, INT64_MAX, 0, tensor.cols},
        {0, 0, 1, tensor.cols, INT64_MAX}};
    for (const auto& words : bad) {
        auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, 5'000).value();
            if (fabric.rank == 1) {
                EXPECT_TRUE(comm->Send(std::as_bytes(std::span(words)), 0, {}).ok());
                return;
            }
            const std::atomic<bool> stop{false};
            std::atomic<uint64_t> fed{0};
            const Status served = StreamWeights(*comm, *source_, stop, fed);
            ASSERT_FALSE(served.ok());
            EXPECT_EQ(served.error().code, ErrorCode::kCorrupt);
            EXPECT_EQ(fed.load(), 0u);
        });
    }
}

}  // namespace
}  // namespace weft::engine
