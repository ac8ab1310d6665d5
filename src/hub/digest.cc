#include "hub/digest.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "base/check.h"
#include "base/hash.h"

namespace weft::hub {

struct Digest::State {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    ~State() { EVP_MD_CTX_free(context); }
};

Digest::Digest(bool sha256, uint64_t size) : state_(std::make_unique<State>()) {
    WEFT_CHECK(state_->context != nullptr);
    WEFT_CHECK(EVP_DigestInit_ex(state_->context, sha256 ? EVP_sha256() : EVP_sha1(), nullptr));
    if (sha256) return;
    std::string header = fmt::format("blob {}", size);
    header += '\0';
    Add(std::as_bytes(std::span(header)));
}

Digest::~Digest() = default;

void Digest::Add(std::span<const std::byte> bytes) {
    WEFT_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Digest::Finish() {
    std::array<uint8_t, EVP_MAX_MD_SIZE> digest;
    unsigned size = 0;
    WEFT_CHECK(EVP_DigestFinal_ex(state_->context, digest.data(), &size));
    return Hex(std::span(digest).first(size));
}

}  // namespace weft::hub
