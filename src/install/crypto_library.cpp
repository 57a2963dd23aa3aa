#include "install/crypto_library.h"

#include <openssl/opensslv.h>

#include "install/dynamic_library.h"

// The one whose headers this was compiled with.
#define WADER_TEXT(number) #number
#define WADER_TEXT_OF(macro) WADER_TEXT(macro)
#define WADER_CRYPTO_VERSION WADER_TEXT_OF(OPENSSL_SHLIB_VERSION)

namespace wader {
namespace {

Result<CryptoLibrary> load() {
  ASSIGN_OR_RETURN(
      const DynamicLibrary file,
      DynamicLibrary::open("libcrypto.so." WADER_CRYPTO_VERSION, "libssl" WADER_CRYPTO_VERSION));
  CryptoLibrary library;
#define WADER_CRYPTO_LOAD(name) RETURN_IF_ERROR(file.find(#name, library.name));
  WADER_CRYPTO_FUNCTIONS(WADER_CRYPTO_LOAD)
#undef WADER_CRYPTO_LOAD
  return library;
}

const Result<CryptoLibrary>& loaded() {
  static const Result<CryptoLibrary> library = load();
  return library;
}

}  // namespace

Status load_crypto() {
  const Result<CryptoLibrary>& library = loaded();
  return library.ok() ? Status() : Status(library.error());
}

const CryptoLibrary& crypto() {
  return *loaded();
}

}  // namespace wader
