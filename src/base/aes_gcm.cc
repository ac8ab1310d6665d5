#include "base/aes_gcm.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace weft {
namespace {

constexpr size_t kNonceBytes = 12;
// EVP_CipherUpdate takes an int.
constexpr size_t kMostUpdateBytes = size_t{1} << 30;

}  // namespace

void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const {
    EVP_CIPHER_CTX_free(context);
}

AesGcm::AesGcm(Direction direction, std::span<const uint8_t> key) : context_(EVP_CIPHER_CTX_new()) {
    WEFT_CHECK(key.size() == 16 || key.size() == 32);
    const EVP_CIPHER* cipher = key.size() == 16 ? EVP_aes_128_gcm() : EVP_aes_256_gcm();
    WEFT_CHECK(context_ != nullptr &&
               EVP_CipherInit_ex(context_.get(), cipher, nullptr, key.data(), nullptr,
                                 direction == Direction::kSeal ? 1 : 0) == 1);
}

AesGcm::AesGcm(AesGcm&&) noexcept = default;
AesGcm::~AesGcm() = default;

bool AesGcm::Begin(uint64_t number, Bytes header) {
    std::array<uint8_t, kNonceBytes> nonce{};
    for (size_t i = 0; i < 8; ++i) nonce[i] = static_cast<uint8_t>(number >> (8 * i));
    return EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
           (header.empty() || Update(header, nullptr));
}

bool AesGcm::Update(Bytes in, std::byte* out) {
    WEFT_CHECK(in.size() <= kMostUpdateBytes);
    int written = 0;
    return EVP_CipherUpdate(context_.get(), reinterpret_cast<uint8_t*>(out), &written,
                            reinterpret_cast<const uint8_t*>(in.data()),
                            static_cast<int>(in.size())) == 1;
}

void AesGcm::Seal(uint64_t number, Bytes header, std::span<const Bytes> parts, std::byte* out,
                  Tag tag) {
    bool good = Begin(number, header);
    for (const Bytes part : parts) {
        if (part.empty()) continue;
        good = good && Update(part, out);
        out += part.size();
    }
    uint8_t rest[16];
    int count = 0;
    good = good && EVP_CipherFinal_ex(context_.get(), rest, &count) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, tag.data()) == 1;
    WEFT_CHECK(good);
}

bool AesGcm::Open(uint64_t number, Bytes header, Bytes in, std::byte* out, Bytes tag) {
    if (tag.size() != kTagBytes) return false;
    std::array<uint8_t, kTagBytes> expected;
    std::memcpy(expected.data(), tag.data(), kTagBytes);
    uint8_t rest[16];
    int count = 0;
    return Begin(number, header) && (in.empty() || Update(in, out)) &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, expected.data()) ==
               1 &&
           EVP_CipherFinal_ex(context_.get(), rest, &count) == 1;
}

}  // namespace weft
