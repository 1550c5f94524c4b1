//! provider-native
