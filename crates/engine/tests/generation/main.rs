//! Rows that generate by themselves, on a scripted model.

#![allow(clippy::unwrap_used)] // also in the helpers of tests

mod admission;
mod cases;
mod continuing;
mod failures;
mod noise;
mod parties;
mod property;
mod support;
