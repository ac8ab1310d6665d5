// The X25519 key pair (RFC 7748, computed by OpenSSL) of one end of one handshake.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/hash.h"
#include "base/result.h"

struct evp_pkey_st;

namespace weft::cluster {

using PublicKey = std::array<std::byte, 32>;

// Erases a secret from memory before it frees it.
struct EraseSecret {
    void operator()(Sha256Digest* secret) const;
};
using Secret = std::unique_ptr<Sha256Digest, EraseSecret>;
Secret MakeSecret();  // of zeros

class EphemeralKey {
  public:
    EphemeralKey();  // a fresh pair
    const PublicKey& public_key() const { return public_; }
    // The secret that both ends share. Erases the private key, so call it once. Errors: kDenied (a
    // point of low order, with which everyone can compute the secret).
    Result<Secret> Agree(const PublicKey& peer);

  private:
    struct Free {
        void operator()(evp_pkey_st* key) const;
    };
    std::unique_ptr<evp_pkey_st, Free> key_;  // OpenSSL erases it when it frees it
    PublicKey public_{};
};

}  // namespace weft::cluster
