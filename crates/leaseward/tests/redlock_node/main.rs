//! What one node of a Redlock does, beside the pure rules that the model explores: the script on a real server must decide
//! as they do.

mod failed;
mod node;
mod records;
mod reference;
mod script;
