// Sanitizers make arithmetic twenty times slower: their builds run a part of the long sweeps.
// Memory is not the program's own there.
#pragma once

namespace wader::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace wader::testing
