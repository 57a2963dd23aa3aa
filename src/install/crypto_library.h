// libcrypto's digests, loaded with the hub's client (1.4 MiB resident). The plain functions and not
// EVP: their state is bytes that can be kept.
#pragma once

#define OPENSSL_SUPPRESS_DEPRECATED  // SHA256_Init and its kin
#include <openssl/sha.h>

#include "base/result.h"

namespace wader {

struct CryptoLibrary {
#define WADER_CRYPTO_FUNCTIONS(use)                                                   \
  use(SHA1_Init) use(SHA1_Update) use(SHA1_Final) use(SHA256_Init) use(SHA256_Update) \
      use(SHA256_Final)
#define WADER_CRYPTO_MEMBER(name) decltype(&::name) name = nullptr;
  WADER_CRYPTO_FUNCTIONS(WADER_CRYPTO_MEMBER)
#undef WADER_CRYPTO_MEMBER
};

// unsupported, and which package to install, where it is not there. From any thread; the result
// lives as long as the program.
Status load_crypto();
// After load_crypto() has succeeded.
const CryptoLibrary& crypto();

}  // namespace wader
