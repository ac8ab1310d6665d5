#include "cluster/join/ephemeral_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <utility>

#include "base/check.h"

namespace weft::cluster {
namespace {

struct FreeKeyContext {
    void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, FreeKeyContext>;

uint8_t* RawKey(PublicKey& key) {
    return reinterpret_cast<uint8_t*>(key.data());
}

}  // namespace

void EraseSecret::operator()(Sha256Digest* secret) const {
    OPENSSL_cleanse(secret->data(), secret->size());
    delete secret;
}

Secret MakeSecret() {
    return Secret(new Sha256Digest{});
}

void EphemeralKey::Free::operator()(evp_pkey_st* key) const {
    EVP_PKEY_free(key);
}

EphemeralKey::EphemeralKey() {
    const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_X25519, nullptr));
    EVP_PKEY* key = nullptr;
    WEFT_CHECK(context != nullptr && EVP_PKEY_keygen_init(context.get()) > 0 &&
               EVP_PKEY_keygen(context.get(), &key) > 0);
    key_.reset(key);
    size_t size = public_.size();
    WEFT_CHECK(EVP_PKEY_get_raw_public_key(key, RawKey(public_), &size) > 0 &&
               size == public_.size());
}

Result<Secret> EphemeralKey::Agree(const PublicKey& peer) {
    WEFT_CHECK(key_ != nullptr);
    const auto own = std::exchange(key_, nullptr);
    PublicKey theirs = peer;
    const std::unique_ptr<evp_pkey_st, Free> other(
        EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, RawKey(theirs), theirs.size()));
    const KeyContext context(EVP_PKEY_CTX_new(own.get(), nullptr));
    WEFT_CHECK(other != nullptr && context != nullptr && EVP_PKEY_derive_init(context.get()) > 0 &&
               EVP_PKEY_derive_set_peer(context.get(), other.get()) > 0);
    Secret secret = MakeSecret();
    size_t size = secret->size();
    // OpenSSL refuses a secret of zeros too, but does not promise it.
    if (EVP_PKEY_derive(context.get(), secret->data(), &size) <= 0 || size != secret->size() ||
        DigestsEqual(*secret, {})) {
        return MakeError(ErrorCode::kDenied, "its public key is a point of low order");
    }
    return secret;
}

}  // namespace weft::cluster
