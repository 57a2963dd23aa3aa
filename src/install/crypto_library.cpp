#include "install/crypto_library.h"

#include "install/dynamic_library.h"

namespace wader {
namespace {

Result<CryptoLibrary> load() {
  ASSIGN_OR_RETURN(const DynamicLibrary file, DynamicLibrary::open("libcrypto.so.3", "libssl3"));
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
